"""Layers with gates.

- `gated`: a sigmoid of the query's token on the output of each head.

May import `projections`.
"""
