"""The tasks: inputs and right answers, with no attention in them; and training on them.

- `graphs`: graphs by name, by family or from a file, as one adjacency matrix under one set of rules.
- `systems`: linear systems and their simulation.
- `tasks`: the tasks, one file each, and their right answers, `filter_bank` and `count_pairs`.
- `training`: small models around the attention layers, trained on these tasks, many runs at once.

Right answers are a frozen dataclass with `sample(generator, ...)` and `target(inputs)`. The target is the oracle:
written from the task's definition, in integers or float64, sharing no code with what it judges. A sample depends on the
state of the generator only: two batches of 4 are one batch of 8. Streams that must not meet come from one seed:

    train, validation, test = np.random.default_rng(seed).spawn(3)

This package may import `iha_theory` (the oracles do not), and never `constructions` or `figures`.
"""
