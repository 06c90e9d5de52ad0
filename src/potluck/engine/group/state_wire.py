"""A training state as a plain header and the raw bytes of its tensors: nothing in it can run code."""

import json
from typing import Any

import torch
from torch import Tensor

from potluck.core.errors import GroupError

_PLAIN = (str, int, float, bool, type(None))
_FIX = "run the same version of Potluck on every machine"


def describe(state: Any) -> tuple[bytes, list[Tensor]]:
    """The header that says how the state is built, and its tensors in the order of the header."""
    tensors: list[Tensor] = []
    tree = _to_tree(state, tensors)
    shapes = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    return json.dumps({"tree": tree, "tensors": shapes}).encode(), tensors


def allocate(header: bytes) -> tuple[Any, list[Tensor]]:
    """The tree of a header, and empty tensors to be filled with the bytes that follow it."""
    try:
        content = json.loads(header)
        tensors = [torch.empty(shape, dtype=_dtype(name)) for name, shape in content["tensors"]]
        return content["tree"], tensors
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise GroupError(f"a peer's state cannot be read: {error}", fix=_FIX) from error


def rebuild(tree: Any, tensors: list[Tensor]) -> Any:
    """The state that a tree and its tensors describe."""
    match tree:
        case {"t": int(index)}:
            return tensors[index]
        case {"d": list(items)}:
            return {rebuild(key, tensors): rebuild(value, tensors) for key, value in items}
        case {"l": list(items)}:
            return [rebuild(item, tensors) for item in items]
        case {"u": list(items)}:
            return tuple(rebuild(item, tensors) for item in items)
        case {"p": value}:
            return value
    raise GroupError("a peer's state has a part of unknown kind", fix=_FIX)


def _to_tree(state: Any, tensors: list[Tensor]) -> Any:
    match state:
        case Tensor():
            tensors.append(state)
            return {"t": len(tensors) - 1}
        case dict():
            return {"d": [[_to_tree(key, tensors), _to_tree(value, tensors)] for key, value in state.items()]}
        case list():
            return {"l": [_to_tree(item, tensors) for item in state]}
        case tuple():
            return {"u": [_to_tree(item, tensors) for item in state]}
    if type(state) in _PLAIN:
        return {"p": state}
    raise GroupError(f"a {type(state).__name__} cannot be sent to a peer", fix="keep tensors and plain data in states")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"no dtype {name!r}")
    return dtype
