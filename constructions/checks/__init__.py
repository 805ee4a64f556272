"""A construction against an independent answer.

- `result`: what a check found. `operators`: the error of any layer, exactly and in float64.
- `mutants`: damaged constructions, which every check must catch. `helpers`: damaged functions that build them.
- `inclusion`: two layers against each other.
- `rows`: the operator of a layer on many tokens, from its weights. `factors`: the matrices whose products its maps are.
- `oracles`: right answers, which import no construction.
"""
