"""Layers that differ in how queries, keys and values are made.

- `multihead`: MHA, each head its own.
- `grouped`: GQA and MQA, key and value heads shared by groups.
- `latent`: MLA, keys and values from a narrow latent vector.
- `tensor_product`: TPA, each a sum of products of two factors.
"""
