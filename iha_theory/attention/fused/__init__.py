"""Softmax attention of interleaved tokens by torch's fused kernel, without a mask of all pairs.

- `kernel`: the kernel itself, and its backward, on tensors of any widths.
- `token_causal`: causality by token: the kernel's causal attention, merged with the rest of each token's own block.
- `blocks`: masks and windows: blocks of queries, each against the keys that it may see.
- `operation`: both as one torch operation, for autograd, torch.func and torch.compile.

May import `masks`.
"""
