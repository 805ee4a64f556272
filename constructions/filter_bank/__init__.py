"""The polynomial filter bank [X, A X, ..., A^{k-1} X].

- `paper`: MHA and IHA as in App. B.2. `products`: banks of products Q_a K_b^T.
- `tiled`: fewer attention maps. `two_layer`: two layers of MHA, `deep`: L of any. `reduced`: dependent powers.
- `unstructured`: any bank, by half as many heads.
- `approximate`, `product_fit`: within an error. `causal`: under the causal mask.

Imports `constructions.construction` and the packages below.
"""
