"""The outer step of rounds: moves the global parameters by what all workers' parameters have moved in a round."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from potluck.planning.costs import bucket_bytes

_RATE = 0.7
_TRIED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)


class OuterStep:
    """The global parameters at the beginning of a round, and SGD with Nesterov momentum that changes them."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.has_batch_norm = any(isinstance(module, nn.modules.batchnorm._NormBase) for module in model.modules())
        self.optimizer_name = type(optimizer).__name__.lower() if type(optimizer) in _TRIED else ""
        """The optimizer, if rounds were tried with it."""
        self.about_to_change: Callable[[], None] = lambda: None
        """Called before the outer step: from now on a stop must wait until the round is counted."""
        self._names = {
            name: parameter
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if parameter.requires_grad
        }
        self._parameters: list[Tensor] = list(dict.fromkeys(self._names.values()))
        self._global: list[nn.Parameter] = []
        self._momenta: list[Tensor] = []

    # A round

    def begin(self) -> None:
        """A round begins: all workers have the same parameters now."""
        if not self._global:
            self._global = [nn.Parameter(parameter.detach().clone()) for parameter in self._parameters]
        else:
            _copy(self._global, self._parameters)

    def moved(self, weight: float) -> list[Tensor]:
        """How far this worker's parameters have moved in the round, times `weight`, in flat tensors of some MB."""
        pairs = zip(self._parameters, self._global, strict=True)
        flat = torch.cat([_wide((its_global - own).detach()).flatten() for own, its_global in pairs])
        return _split(flat.mul_(weight))

    def nothing(self) -> list[Tensor]:
        """Zeros in the shapes of `moved`, from a worker whose steps do not count in this round."""
        return _split(torch.cat([_wide(torch.zeros_like(own)).flatten() for own in self._parameters]))

    def apply(self, summed: list[Tensor], weight: float, momentum: float) -> None:
        """The outer step, with the sums of all workers' `moved` and of their weights: parameters are global again."""
        flat = torch.cat(summed).div_(weight)
        for parameter, gradient in zip(self._global, torch.split(flat, [p.numel() for p in self._global]), strict=True):
            parameter.grad = gradient.view_as(parameter).to(parameter.dtype)
        optimizer = torch.optim.SGD(self._global, lr=_RATE, momentum=momentum, nesterov=momentum > 0)
        for parameter, its_momentum in zip(self._global, self._momenta, strict=False):
            optimizer.state[parameter]["momentum_buffer"] = its_momentum
        optimizer.step()
        if momentum > 0:
            self._momenta = [optimizer.state[parameter]["momentum_buffer"] for parameter in self._global]
        for parameter in self._global:
            parameter.grad = None
        _copy(self._parameters, self._global)

    def global_state(self, own: dict[str, Any]) -> dict[str, Any]:
        """A model's state dict with the global parameters in place of this worker's."""
        by_parameter = dict(zip(self._parameters, self._global, strict=True))
        return own | {name: by_parameter[one].detach() for name, one in self._names.items() if name in own}

    @contextmanager
    def global_parameters(self) -> Iterator[None]:
        """Inside, the model has the global parameters of the round's beginning."""
        own = [parameter.detach().clone() for parameter in self._parameters]
        _copy(self._parameters, self._global)
        try:
            yield
        finally:
            _copy(self._parameters, own)

    # Between rounds

    def state_dict(self) -> dict[str, Any]:
        return {"momenta": list(self._momenta)}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Take over another worker's or a checkpoint's momenta; without any, begin with none."""
        momenta = [] if state is None else state["momenta"]
        self._momenta = [
            momentum.to(parameter.device, copy=True)
            for momentum, parameter in zip(momenta, self._parameters, strict=False)
        ]


def _wide(values: Tensor) -> Tensor:
    """The values in float32 at least: sums over workers of halves would lose digits."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _split(flat: Tensor) -> list[Tensor]:
    """Parts of some MB, one after the other in memory: one is on the wire while another is coded."""
    return list(torch.split(flat, bucket_bytes(4 * flat.numel()) // 4))


def _copy(targets: list[Any], sources: list[Any]) -> None:
    with torch.no_grad():
        torch._foreach_copy_(list(targets), list(sources))
