"""Layers with gates.

- `gated`: a sigmoid of the query's token on the output of each head.
- `gated_linear`: weights that decay by gates of the tokens between; linear, or softmax.

May import `projections`.
"""
