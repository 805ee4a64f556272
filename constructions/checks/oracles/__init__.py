"""Right answers from the tasks' definitions. Imports no construction."""

from collections.abc import Callable

from torch import Tensor

Operator = Callable[[Tensor], Tensor]
"""A linear map of content: (batch, N, width) to (batch, N, read), read the coordinates of a readout side by side."""
