"""Layers whose query attends to pairs of keys.

- `pairs`: what they share.
- `simplicial`: 2-simplicial attention, trilinear logits.
- `strassen`: Strassen attention, sums of pairwise logits.
"""
