"""Training on the tasks: small models around the attention layers, from sampled data, many runs at once.

- `config`: `TrainConfig`, a run: a task and a layer with their options, and those of training; `options`: the same on
  the command line and in files; `own`: a layer of the user's.
- `data`: training data that can be saved and continued; the splits of a run, from its seed.
- `model`: the model of a run and its initial weights; `optimiser`: AdamW and its learning rate.
- `program`: runs that train together as one batched program; `loop`: `train`; `checkpoint`: exact continuation.
- `records`: what is kept of a run: `runs.jsonl`, curves, weights; `report`: what is said of it.
- `sweep`: the named grids; over processes or a Dask cluster.

    train([TrainConfig.for_task("polynomial", {"attention": "mha", "heads": 3})])

Names no task: they are entries of `synthetic.tasks`. May import `iha_theory` and `synthetic.tasks`.
"""
