"""Heads for a given graph: bounds beside weights that have them.

- `count`: a row of the table, and what makes rows. `exact`, `approximate`: at tolerance 0 and above.
- `counting`: the table of a graph. `files`, `check`: files of weights, written and verified.
- `costs`: parameters and FLOPs, counted. `command`, `costs_command`: `heads` and `costs`.
"""
