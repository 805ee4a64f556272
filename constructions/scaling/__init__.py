"""How far checks and counts reach: time, memory and growth of `iha-theory bench verify` and `bench rank`.

- `workspace`: the workspace for thousands of tokens, its permutations as indices.
- `rows`: what is measured, each in a process of its own. `tables`: the two benchmarks.

The top of the constructions: nothing imports it but the entry points under `iha_theory.benchmarks`.
"""
