"""Layers that mix heads or maps.

- `interleaved`: IHA, pseudo-heads.
- `talking_heads`: logits and weights mixed over the heads.
- `composable`: DCMHA, logits and weights mixed by matrices that the tokens make.
- `multi_token`: logits convolved over queries and keys.
- `differential`: the difference of two maps a head.

May import `projections`.
"""
