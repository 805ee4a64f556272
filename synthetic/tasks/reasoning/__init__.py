"""Reasoning tasks of the literature, on any attention, in one small transformer (docs/reasoning.md).

- `relations`: composing Boolean relations (the paper's App. D). `quotient`: with colours in between. `match3`: three
  tokens that sum to 0. `composition`: f(f(0)). `retrieval`: values of several keys among distractors. `hops`:
  induction in k hops. Each has its options, its data and right answers, in integers, and its sweeps.
- `base`: what they share: the model's options, what a task says of its examples. `frame`: its half in torch.
- `grids`: the grids that their sweeps share.

Right answers come from the task's definition and share no code with what they judge.
"""
