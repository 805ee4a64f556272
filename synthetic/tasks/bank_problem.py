"""A bank of matrices as a run sees it, and the models around a layer: N tokens, d the content's width, k blocks."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from iha_theory.attention import KINDS
from iha_theory.attention.patterns import Pattern
from iha_theory.bounds import heads as bounds
from iha_theory.bounds.content import content_floor
from iha_theory.operators import stacked
from iha_theory.operators.numerical import EPS, position_only, realignment
from synthetic.tasks.task import Measured, Problem, Samples, Setting, Split

Model = Callable[[Tensor], Tensor]


class Bank(Problem):
    """X -> [T_0 X, ..., T_{k-1} X] for X with independent standard normal entries, (N, d).

    The loss is the relative squared error |output - target|^2 / E |target|^2 of the batch. The floor is that of
    docs/bounds.md (Theorem 3) at the layer's capacity; in content mode, where queries and values see content and keys
    positions only, that of docs/content.md (Theorem 1), whose proof needs maps that are affine in the query's content:
    for the other layers none is known.

    Args:
        matrices: T, (k, N, N).
        width: d.
        setting: of the run.
        pattern: of the attention.
        content: whether queries see content.

    Attributes:
        norm: E |target|^2.
        linear: whether the model is known to be linear in X.
        images: the target of each basis content, (N d, N, k d), in the run's dtype on its device.
    """

    def __init__(
        self,
        matrices: Float64[np.ndarray, "k N N"],
        width: int,
        setting: Setting,
        *,
        pattern: Pattern,
        content: bool = False,
    ) -> None:
        self.matrices, self.width, self.pattern, self.content = matrices, width, pattern, content
        self.terms, self.tokens = self.matrices.shape[:2]
        self.norm = float((self.matrices**2).sum()) * self.width
        self.linear = not self.content and setting.capacity is not None
        self.images = self._images().to(torch.device(setting.device), getattr(torch, setting.dtype))
        if setting.capacity is None or (self.content and not KINDS[setting.attention].affine_maps):
            self.floor = None
        elif self.content:
            self.floor = content_floor(self.matrices, setting.capacity)
        else:
            self.floor = bounds.error_floor(bounds.spectrum(self.matrices), setting.capacity)

    def _images(self) -> Tensor:
        eye = torch.eye(self.width, dtype=torch.float64)
        images = torch.einsum("tij,ab->jaitb", torch.from_numpy(self.matrices.copy()), eye)
        return images.reshape(self.tokens * self.width, self.tokens, self.terms * self.width)

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """X, (count, N, d); every split takes every X."""
        return (generator.standard_normal((count, self.tokens, self.width)),)

    def model(self, make: Callable[..., nn.Module]) -> "Frame":
        """`PositionOnly`, or in content mode `ContentQueries`."""
        frame = ContentQueries if self.content else PositionOnly
        return frame(make, self.tokens, self.width, self.terms * self.width, self.pattern)

    def loss(self, model: Model, X: Float[Tensor, "batch N d"]) -> Float[Tensor, ""]:
        """|model(X) - target|^2 / E |target|^2 over the batch.

        A linear model is X (model - target) on the basis contents, which costs the same for any batch.
        """
        contents = X.flatten(1)
        if self.linear:
            basis = torch.eye(contents.shape[1], dtype=X.dtype, device=X.device).unflatten(1, X.shape[1:])
            residual = contents @ (model(basis) - self.images).flatten(1)
        else:
            residual = model(X).flatten(1) - contents @ self.images.flatten(1)
        return residual.square().sum() / (self.norm * len(X))

    def losses(
        self, model: nn.Module, weights: Mapping[str, Tensor], X: Float[Tensor, "runs batch N d"]
    ) -> Float[Tensor, " runs"] | None:
        """Those of linear models whose operators `stacked` makes: the same products for one run and for many."""
        if not self.linear or not isinstance(model, PositionOnly) or not stacked.saves(model.layer):
            return None
        own = {name.removeprefix("layer."): weight for name, weight in weights.items()}
        residual = X.flatten(2) @ (stacked.images(model.layer, own) - self.images).flatten(2)
        return residual.square().sum((1, 2)) / (self.norm * X.shape[1])

    def measure(self, model: nn.Module, run: Model, validation: Samples, test: Samples) -> Measured:
        """The exact operator's relative squared error in float64; the test set's, of a model not known as linear."""
        if self.linear:
            layer = model.get_submodule("layer")
            got = realignment(position_only(layer, torch.eye(self.tokens), width=self.width))
            eye = torch.eye(self.width, dtype=torch.float64)
            wanted = torch.einsum("tij,ab->ijatb", torch.from_numpy(self.matrices.copy()), eye).reshape(got.shape)
            return Measured(error=float((got - wanted).square().sum()) / self.norm, slack=1e3 * EPS)
        X = torch.from_numpy(test[0])
        residual = run(X).double().cpu().flatten(1) - X.flatten(1) @ self._images().flatten(1)
        errors = residual.square().sum(1) / self.norm
        chance = 6 * float(errors.std()) / len(X) ** 0.5
        return Measured(error=float(errors.mean()), slack=chance + 1e3 * EPS)


class Frame(nn.Module):
    """A layer with one-hot positions: (batch, N, d) -> (batch, N, k d)."""

    positions: Tensor

    def __init__(self, layer: nn.Module, tokens: int) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("positions", torch.eye(tokens).unsqueeze(0), persistent=False)


class PositionOnly(Frame):
    """layer(positions, positions, X)."""

    def __init__(self, make: Callable[..., nn.Module], tokens: int, width: int, out: int, pattern: str) -> None:
        layer = make(tokens, tokens, width, content=width, tokens=tokens, pattern=pattern, out=out)
        super().__init__(layer, tokens)

    def forward(self, X: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N kd"]:
        """The blocks side by side."""
        return self.layer(self.positions, self.positions, X)


class ContentQueries(Frame):
    """layer([X, I], I, [X, I]): queries and values see content and positions, keys positions only (docs/content.md).

    A head's values are as wide as the output, so that those of X and those of positions can be kept apart.
    """

    def __init__(self, make: Callable[..., nn.Module], tokens: int, width: int, out: int, pattern: str) -> None:
        both = width + tokens
        super().__init__(make(both, tokens, both, content=out, tokens=tokens, pattern=pattern, out=out), tokens)

    def forward(self, X: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N kd"]:
        """The blocks side by side."""
        positions = self.positions.expand(len(X), -1, -1)
        both = torch.cat((X, positions), dim=-1)
        return self.layer(both, positions, both)
