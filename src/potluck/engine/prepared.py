"""What `run.prepare` hands back: the user's own objects, with the run's part added."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from potluck.core.errors import UsageError
from potluck.engine.precision import Precision


class PreparedModel(nn.Module):
    """The user's model (`.module`), called in the run's precision; training passes go through the exchange.

    Its attributes, parameter names and state dict are those of the model itself.
    """

    def __init__(
        self,
        module: nn.Module,
        exchanging: nn.Module,
        precision: Precision,
        may_clear: Callable[[], bool],
        noticing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__()
        self.module = module
        self._may_clear = may_clear
        self._noticing = noticing
        # Not a submodule: the same parameters would be listed twice.
        object.__setattr__(self, "_exchanging", exchanging)
        self._precision = precision

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # Without gradients nothing is exchanged, and DDP's buffer broadcast must not be triggered.
        target = self._exchanging if self.training and torch.is_grad_enabled() else self.module
        with self._noticing(), self._precision.forward_context():
            output = target(*args, **kwargs)
        return self._precision.full(output)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        # Between the micro-batches of one step the gradients are still being summed.
        if self._may_clear():
            super().zero_grad(set_to_none)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return self.module.named_parameters(*args, **kwargs)


class PreparedOptimizer(Optimizer):
    """The user's optimizer, stepping once a global batch, and only when the step is committed."""

    def __init__(self, inner: Optimizer, commit: Callable[[], None], may_clear: Callable[[], bool]) -> None:
        self.inner = inner
        self._commit = commit
        self._may_clear = may_clear
        # Hooks that a script registers here are the inner optimizer's.
        self.__dict__.update({name: value for name, value in vars(inner).items() if name.endswith("_hooks")})

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.inner.defaults

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise UsageError(
                "optimizer.step was given a closure, which would run the step several times",
                fix="use an optimizer that needs none, and call optimizer.step() without an argument",
            )
        self._commit()

    def zero_grad(self, set_to_none: bool = True) -> None:
        # Between the micro-batches of one step the gradients are still being summed.
        if self._may_clear():
            self.inner.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.inner.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        self.inner.load_state_dict(state_dict)

    def __repr__(self) -> str:
        return f"PreparedOptimizer({self.inner!r})"

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a prepared optimizer belongs to its process; save optimizer.state_dict() instead")


class PreparedScheduler:
    """The user's learning-rate schedule: inside the loop it moves with committed steps, outside with every call."""

    def __init__(self, inner: LRScheduler, may_step: Callable[[], bool]) -> None:
        self.inner = inner
        self._may_step = may_step

    def step(self, *args: Any, **kwargs: Any) -> None:
        if self._may_step():
            self.inner.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def trained_parameters(optimizer: Optimizer) -> list[Tensor]:
    """What the optimizer changes, groups that were added late included."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def check_parameters(model: nn.Module, optimizer: Optimizer) -> None:
    """Refuse an optimizer that cannot train this model."""
    trained = trained_parameters(optimizer)
    if not {id(parameter) for parameter in trained} <= {id(parameter) for parameter in model.parameters()}:
        raise UsageError(
            "the optimizer holds parameters that are not the model's",
            fix="make the optimizer from model.parameters() of the same model, then call run.prepare",
        )
    if not any(parameter.requires_grad for parameter in trained):
        raise UsageError(
            "no parameter of the optimizer requires a gradient: there is nothing to train",
            fix="unfreeze some with parameter.requires_grad_(True) before run.prepare",
        )


def weigh(parameters: list[Tensor], divisor: float) -> None:
    """Mean over the global batch: sum_i (n_i / B) * mean_i / (sum_i n_i / B), for any split n."""
    if divisor != 1.0:
        torch._foreach_div_([parameter.grad for parameter in parameters if parameter.grad is not None], divisor)
