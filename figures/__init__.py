"""Pictures: each module reads results (`CheckResult`s as JSON) and draws one picture, as SVG and PNG.

- `heads`: head counts of MHA and IHA against the size of the task.

May import from all other packages. Nothing here computes a result.
"""
