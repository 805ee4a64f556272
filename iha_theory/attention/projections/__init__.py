"""Layers that differ in how queries, keys and values are made.

- `multihead`: MHA, each head its own.
- `grouped`: GQA and MQA, key and value heads shared by groups.
"""
