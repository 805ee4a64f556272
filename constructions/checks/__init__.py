"""A construction against an independent answer.

- `result`: what a check found. `operators`: the error of any layer, exactly and in float64.
- `mutants`: damaged constructions, which every check must catch. `helpers`: damaged functions that build them.
- `inclusion`: two layers against each other.
- `oracles`: right answers, which import no construction.
"""
