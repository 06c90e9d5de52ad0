"""Tensors as raw bytes, and digests of their values."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

_CHUNK_BYTES = 1 << 24
_NUM_LOOKED_AT = 256


def digest_of(tensors: Iterable[Tensor]) -> str:
    """A digest of the tensors' values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        for piece in chunks(tensor):
            digest.update(piece)
    return digest.hexdigest()[:16]


def some_values(tensor: Tensor) -> bytes:
    """Some of the tensor's values, evenly spread: enough to notice that a script has changed them."""
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // _NUM_LOOKED_AT)]
    return b"".join(bytes(piece) for piece in chunks(some))


def chunks(tensor: Tensor, size: int = _CHUNK_BYTES) -> Iterator[memoryview]:
    """The bytes of a tensor in chunks of at most `size` bytes; writing into a CPU tensor's chunks fills the tensor."""
    flat = tensor.detach().reshape(-1)
    step = max(1, size // max(1, tensor.element_size()))
    for start in range(0, flat.numel(), step):
        part = flat[start : start + step]
        content: Any = part.contiguous().cpu().view(torch.uint8).numpy()
        yield memoryview(content)
