"""How fast the layers are, as ratios.

- `ways`: what is measured: a layer's forward and backward pass, the floor of its arithmetic, a plain IHA.
- `decode`: the next token of layers with caches, and when its work is free.
- `measure`: time, alternated, and peak memory, in a process of its own.

May import `attention`.
"""
