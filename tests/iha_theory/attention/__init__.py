"""Tests of `iha_theory.attention`.

- `reference`: every layer again, in numpy loops, from the definitions; no code shared with the package.
- `layers`: the table of layers that the contract tests run over.
- `test_reference`: the layers against the reference, IHA against Definition 3 as a property.
- `test_cases`: case 9 to 19, for every layer.
- `mixing`: IHA's own: its start as MHA, fusing, conversion, loading.
- `test_refusals`: what is refused, and the words it is refused with.
- `test_compile`: torch.compile.
"""
