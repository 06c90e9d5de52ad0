"""Mixed precision: autocast in forward, one loss scale for all workers."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from potluck.core.errors import SettingsError, did_you_mean

DTYPES: dict[str, torch.dtype | None] = {"no": None, "fp16": torch.float16, "bf16": torch.bfloat16}


class Precision:
    """Autocast and loss scaling on one device, for one value of `mixed_precision`.

    Gradients are unscaled after the all-reduce, so every worker sees the same overflow and changes its loss scale in
    the same way.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name not in DTYPES:
            raise SettingsError(f"mixed_precision cannot be {name!r}", fix=did_you_mean(name, DTYPES))
        self.name = name
        self._dtype = DTYPES[name]
        self._device = device
        self._scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def forward_context(self) -> AbstractContextManager[Any]:
        """The context that a forward pass runs in."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)

    def full(self, output: Any) -> Any:
        """A model's output in float32, so that the loss is computed exactly."""
        return output if self._dtype is None else _to_float32(output)

    def scale(self, loss: Tensor) -> Tensor:
        return loss if self._scaler is None else self._scaler.scale(loss)

    @property
    def loss_scale(self) -> float:
        return 1.0 if self._scaler is None else self._scaler.get_scale()

    def unscale(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        """Divide the gradients by the group's loss scale; a worker that is being healed still has another scale."""
        if self._scaler is None:
            return
        if scale != self.loss_scale:
            self._scaler.update(scale)
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        """Step the optimizer; False if gradients overflowed: the loss scale is lowered, and no parameter changes."""
        if self._scaler is None:
            optimizer.step()
            return True
        before = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        return self._scaler.get_scale() >= before

    def reset(self) -> None:
        """Clear what GradScaler noted in a spoiled step; the loss scale stays."""
        if self._scaler is not None:
            self._scaler.update(self._scaler.get_scale())

    def state_dict(self) -> dict[str, Any]:
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._scaler is not None and state:
            self._scaler.load_state_dict(state)


def _to_float32(output: Any) -> Any:
    match output:
        case Tensor() if output.dtype in (torch.float16, torch.bfloat16):
            return output.float()
        case dict():  # also transformers' outputs, which are dicts of their own class
            for key, value in output.items():
                output[key] = _to_float32(value)
        case tuple() if hasattr(output, "_fields"):
            return type(output)(*(_to_float32(value) for value in output))
        case tuple() | list():
            return type(output)(_to_float32(value) for value in output)
    return output
