"""torch.compile for a model whose share of the batch changes: compiled once, for any number of samples.

A new shape that the compiled code does not serve runs without it: compiling again would take a machine out of its run
for half a minute.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

_OPTIONS: dict[str, Any] = {"fallback_random": True}
"""Dropout draws from torch's own generator, and so leaves out what it leaves out without compiling."""


class Compiled(nn.Module):
    """Calls a module compiled; its first pass compiles it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._call = torch.compile(module, options=_OPTIONS)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        mark_samples(args, kwargs)
        return self._call(*args, **kwargs)


def compile_in_place(module: nn.Module) -> None:
    """The module's next pass compiles it; its parameters and names stay as they are."""
    torch.compiler.set_stance("default")
    module.compile(options=_OPTIONS)


@contextmanager
def set_aside(module: nn.Module) -> Iterator[None]:
    """Inside, the module's passes run without what `compile_in_place` made."""
    made, module._compiled_call_impl = module._compiled_call_impl, None
    try:
        yield
    finally:
        module._compiled_call_impl = made


def undo(module: nn.Module) -> None:
    """The module's passes run without what `compile_in_place` made."""
    module._compiled_call_impl = None


def mark_samples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Say of a pass that will be compiled that the number of samples may change."""
    for one in pytree.tree_leaves((args, kwargs)):
        if isinstance(one, Tensor) and one.dim():
            torch._dynamo.maybe_mark_dynamic(one, 0)


def settle() -> None:
    """From now on nothing is compiled in this process: what the compiled code does not serve runs without it."""
    torch.compiler.set_stance("eager_on_recompile")
