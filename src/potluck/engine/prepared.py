"""What `run.prepare` returns: wrappers around the user's model, optimizer and learning-rate schedule."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from potluck.core.errors import UsageError
from potluck.engine.compute.precision import Precision
from potluck.engine.compute.tuner import Tuner
from potluck.measuring.compiled import set_aside

_OWN_NAMES = frozenset(("module", "training", "_exchanging", "_may_clear", "_noticing", "_precision", "_tuner"))


class PreparedModel(nn.Module):
    """The user's model (`.module`), called in the run's precision; training passes all-reduce the gradients.

    Attributes, parameter names and state dict are those of the user's model.
    """

    def __init__(
        self,
        module: nn.Module,
        exchanging: Callable[[], nn.Module],
        precision: Precision,
        may_clear: Callable[[], bool],
        noticing: Callable[[], AbstractContextManager[None]],
        *,
        tuner: Tuner,
    ) -> None:
        super().__init__()
        self.module = module
        self._tuner = tuner
        self._may_clear = may_clear
        self._noticing = noticing
        self._exchanging = exchanging
        self._precision = precision

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # Without gradients nothing is exchanged, and DDP's buffer broadcast must not be triggered.
        # The script may have set the mode of its own model, and not of this wrapper.
        target, trains = self.module, (self.training or self.module.training) and torch.is_grad_enabled()
        if trains:
            self._tuner.settle(self.module, args, kwargs)
            target = self._exchanging()
        tuned_args, tuned_kwargs = self._tuner.inputs(args, kwargs)
        try:
            output = self._pass(target, tuned_args, tuned_kwargs)
        except RuntimeError as error:
            if not self._tuner.tuning.changes_passes:
                raise
            with set_aside(self.module):  # raises again if the script is to blame, not the tuning
                output = self._pass(target, args, kwargs)
            self._tuner.give_up(self.module, error)
        if trains:
            self._tuner.passed()
        return self._precision.full(output)

    def _pass(self, target: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._noticing(), self._precision.forward_context():
            return target(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        # An attribute that the script sets is meant for the user's model, whose forward reads it.
        if name in _OWN_NAMES or "module" not in self.__dict__.get("_modules", ()) or not hasattr(self.module, name):
            super().__setattr__(name, value)
        else:
            setattr(self.module, name, value)

    # For models that are containers: model[0], len(model), for layer in model.

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]  # type: ignore[index]

    def __len__(self) -> int:
        return len(self.module)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.module)  # type: ignore[call-overload,no-any-return]

    def __contains__(self, item: Any) -> bool:
        return item in self.module  # type: ignore[operator]

    def __bool__(self) -> bool:
        return bool(self.module)

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

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        return self.module.named_buffers(*args, **kwargs)


class PreparedOptimizer(Optimizer):
    """The user's optimizer: steps once per global batch, and its changes stay only if the step is committed."""

    def __init__(self, inner: Optimizer, apply: Callable[[Optimizer], None], may_clear: Callable[[], bool]) -> None:
        self.inner = inner
        self._apply = apply
        self._may_clear = may_clear
        # The wrapper shares the inner optimizer's hook dictionaries, so that hooks registered on the wrapper run.
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
        self._apply(self.inner)

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
    """The user's learning-rate schedule: moves with committed steps in the loader's loop, with every call outside."""

    def __init__(self, inner: LRScheduler, may_step: Callable[[], bool]) -> None:
        self.inner = inner
        self._may_step = may_step

    def step(self, *args: Any, **kwargs: Any) -> None:
        if self._may_step():
            self.inner.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
