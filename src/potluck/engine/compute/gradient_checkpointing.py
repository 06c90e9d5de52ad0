"""Gradient checkpointing: blocks keep only their input, and recompute their activations in backward."""

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from potluck.core.errors import UsageError


def checkpoint_blocks(model: nn.Module) -> int:
    """Checkpoint every block of the model and return how many there are.

    A block is an outermost module that is a direct child of an nn.Sequential or nn.ModuleList, and that has children
    and parameters: a residual block, a transformer layer.
    """
    blocks = list(find_blocks(model))
    if not blocks:
        raise UsageError(
            f"gradient checkpointing finds no block in {type(model).__name__}",
            fix="put the repeated parts of the model into an nn.Sequential or nn.ModuleList, or leave it off",
        )
    for block in blocks:
        block.forward = functools.partial(
            checkpoint, block.forward, use_reentrant=False, context_fn=functools.partial(_contexts, block)
        )
    return len(blocks)


def find_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost blocks, in order."""
    for child in model.children():
        if isinstance(model, (nn.Sequential, nn.ModuleList)) and _is_block(child):
            yield child
        else:
            yield from find_blocks(child)


def _is_block(module: nn.Module) -> bool:
    # A list has no forward of its own, so it cannot be recomputed as one block.
    is_list = isinstance(module, (nn.ModuleList, nn.ModuleDict))
    has_parts = any(True for _ in module.children())
    has_parameters = any(True for _ in module.parameters())
    return not is_list and has_parts and has_parameters


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _statistics_set_aside(block)


@contextmanager
def _statistics_set_aside(block: nn.Module) -> Iterator[None]:
    """Let the recomputation update copies of BatchNorm's statistics: the forward pass already counted this batch."""
    kept: list[tuple[nn.Module, str, Tensor]] = []
    for module in block.modules():
        if isinstance(module, _BatchNorm):
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    kept.append((module, name, buffer))
                    module._buffers[name] = buffer.clone()
    try:
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer
