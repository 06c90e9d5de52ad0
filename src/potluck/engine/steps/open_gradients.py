"""The gradients of an incomplete step, kept where the script's own code cannot change them by mistake."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class Gradients:
    """Holds gradients between two backward passes.

    Between the micro-batches of a step, this class holds the sum of gradients, and `parameter.grad` is None. So a
    script that clips gradients by hand finds nothing to clip before the gradient of the whole batch is complete.

    A gradient from before the step's first backward pass (the script did not clear it) is held, too. That gradient is
    the same on all workers, so it must not be summed over them: it is added after the all-reduce.
    """

    def __init__(self, parameters: Callable[[], Iterable[Tensor]]) -> None:
        self._find_parameters = parameters
        self._found: list[Tensor] = []
        self._partial: list[tuple[Tensor, Tensor]] = []
        self._earlier: list[tuple[Tensor, Tensor]] = []
        self._before_step: list[tuple[Tensor, Tensor]] = []

    def begin_sum(self, *, begins_step: bool) -> None:
        """Call before the first of the backward passes that are summed and exchanged together."""
        self._partial = []
        self._earlier = [(p, g.detach().clone()) for p, g in self._take()]
        if begins_step:
            self._before_step = self._earlier

    def continue_sum(self) -> None:
        """Call before a backward pass that adds to the sum held by `set_aside`."""
        for parameter, gradient in self._partial:
            parameter.grad = gradient
        self._partial = []

    def set_aside(self) -> None:
        """Hold the incomplete sum until the next micro-batch."""
        self._partial = self._take()

    def complete(self) -> None:
        """Call after the all-reduce: add the gradients from before the sum."""
        for parameter, gradient in self._earlier:
            parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad.add_(gradient)

    def restore(self) -> None:
        """Call before a retry: restore the gradients from before the step."""
        self._take()
        for parameter, gradient in self._before_step:
            parameter.grad = gradient
        self._partial, self._earlier, self._before_step = [], [], []

    def present(self) -> bool:
        """Whether any parameter has a gradient that the script could apply."""
        return any(parameter.grad is not None for parameter in self._parameters)

    @property
    def _parameters(self) -> list[Tensor]:
        # Cached: walking through the modules takes longest here, and the prepared models do not change.
        self._found = self._found or list(self._find_parameters())
        return self._found

    def _take(self) -> list[tuple[Tensor, Tensor]]:
        taken = [(p, p.grad) for p in self._parameters if p.grad is not None]
        for parameter, _ in taken:
            parameter.grad = None
        return taken


def weigh(parameters: Iterable[Tensor], divisor: float) -> None:
    """Mean over the global batch: sum_i (n_i / B) * mean_i / (sum_i n_i / B), for any split n."""
    if divisor != 1.0:
        torch._foreach_div_([parameter.grad for parameter in parameters if parameter.grad is not None], divisor)


def as_mean(loss: Tensor, count: float | Tensor | None) -> tuple[Tensor, float | Tensor | None]:
    """A loss with one value per sample (or token) as its mean and the number of values; a mean loss stays as it is."""
    if loss.dim() == 0 or (loss.numel() == 1 and count is None):
        return loss.reshape(()), count
    return (loss.mean(), loss.numel()) if count is None else (loss.sum() / count, count)
