"""Frozen parameters in fewer bytes than the script loaded: they count as what they were before they were rounded.

Rounding is one machine's own matter, so machines compare digests of the values from before it.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from potluck.core.errors import UsageError
from potluck.engine.compute.tensor_bytes import digest_of, some_values

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
_ATTRIBUTE = "_potluck_source"


class Source(NamedTuple):
    """What a rounded parameter was before."""

    dtype: torch.dtype
    digest: str
    rounded: bytes
    """Some of the rounded values: if these have changed since, the digest is of another parameter."""


def round_frozen(model: nn.Module, precision: str) -> int:
    """Keep the model's frozen parameters in this precision; return how many bytes that saves."""
    if precision not in PRECISIONS:
        raise UsageError(
            f"frozen_precision={precision!r} is not known to Potluck", fix=f"use one of {', '.join(PRECISIONS)}"
        )
    dtype, saved = PRECISIONS[precision], 0
    for parameter in model.parameters():
        is_wider = parameter.is_floating_point() and parameter.element_size() > dtype.itemsize
        if is_wider and not parameter.requires_grad:
            before, digest = parameter.dtype, digest_of([parameter])
            saved += parameter.nbytes - parameter.numel() * dtype.itemsize
            parameter.data = parameter.data.to(dtype)
            remember_source(parameter, before, digest)
    return saved


def remember_source(parameter: Tensor, dtype: torch.dtype, digest: str) -> None:
    """These values are rounded ones of a parameter with that digest."""
    setattr(parameter, _ATTRIBUTE, Source(dtype, digest, some_values(parameter)))


def source_of(parameter: Tensor) -> Source | None:
    """What the parameter was before it was rounded; None for one that was not."""
    found: Source | None = getattr(parameter, _ATTRIBUTE, None)
    return found


def loaded_dtype(parameter: Tensor) -> torch.dtype:
    """The type in which the script loaded the parameter."""
    source = source_of(parameter)
    return parameter.dtype if source is None else source.dtype
