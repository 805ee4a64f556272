"""Layers that mix heads or maps.

- `interleaved`: IHA, pseudo-heads.
- `talking_heads`: logits and weights mixed over the heads.
- `differential`: the difference of two maps a head.

May import `projections`.
"""
