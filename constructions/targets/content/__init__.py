"""Content in queries, keys and values: what position-only bounds do not say of (docs/content.md, docs/results.md T14).

- `families`: explicit layers that come near a filter bank with a head less, and their exact error.
- `exact_layer`: a layer whose attention depends on content, over the rationals.
- `steps`: the steps of the proofs, as exact ranks on real layers.
- `training`: training on the exact error, against the floors.
"""
