"""Layers whose query attends to pairs of keys.

- `simplicial`: 2-simplicial attention.
"""
