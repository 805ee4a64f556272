"""Checks claims about trained runs (`synthetic.training.certified`), sharing no code with what trains or claims.

- `check`: a claim and its weights, from the task's definition; the file's shape, the floor, the error.
- `operator`: the weights' map, from the definition of the layer, in integers.
- `inertia`: how many eigenvalues of a symmetric integer matrix are above a number, by elimination.
- `matrices`, `intervals`: the claim's matrices and numbers, as they are read.
- `files`: a claim's file with the weights beside it.
- `command`: `iha-theory certify`.

What is shared is the reading of graphs by name (`synthetic.graphs`), for both sides have to mean the same graph.
"""
