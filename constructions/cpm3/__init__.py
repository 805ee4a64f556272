"""CPM-3, counting pairs modulo M.

- `workspace`: all tokens at every position, and the network that counts; `compact`, `causal`: other
  workspaces.
- `mlp`: what counts behind a workspace. `histogram`: without a workspace. `two_heads`: with content in the keys.
- `packing`: positions only and few large numbers. `injective`: whether a position-only layer can count at all.
- `temperature`, `precision`: softmax for hard attention; number formats.

Imports `constructions.filter_bank`, `constructions.construction` and the packages below.
"""
