"""Training on the tasks: small models around the attention layers, from sampled data, many runs at once.

- `config`: `TrainConfig`, every option of a run; `schedule`: its learning rate; `optimiser`: AdamW.
- `streams`, `data`: training data that can be saved and continued; the splits of a run, from its seed.
- `problems`: the tasks as training sees them: data, loss, floor, what a trained model reached.
- `models`: the models and their initial weights.
- `program`: runs that train together as one batched program; `loop`: `train`; `checkpoint`: exact continuation.
- `records`: what is kept of a run: `runs.jsonl` (read by `run_file`), curves, weights.
- `sweep`: the named grids; over processes or a Dask cluster with joblib.

    train([TrainConfig.for_task("polynomial", {"attention": "mha", "heads": 3})])

May import `iha_theory` and the tasks in `synthetic`.
"""
