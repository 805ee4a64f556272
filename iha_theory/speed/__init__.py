"""How fast the layers are, as ratios.

- `ways`: what is measured: a layer's forward and backward pass, the floor of its arithmetic, a plain IHA.
- `measure`: time, alternated, and peak memory, in a process of its own.

May import `attention`.
"""
