"""Parameters that a run does not train: a fine-tuned model's base. Their digests travel in place of their values."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from potluck.engine.compute.frozen_precision import loaded_dtype, source_of
from potluck.engine.compute.tensor_bytes import digest_of, some_values


class FrozenPart(NamedTuple):
    """A parameter that no step changes."""

    digest: str
    values: Tensor
    loaded_dtype: torch.dtype | None = None
    """The type of the values that the digest is of, if they were rounded since."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of the values that the digest is of."""
        return self.loaded_dtype or self.values.dtype


class FrozenParameters:
    """Knows which parameters of the run's models stay as they are, and their digests.

    A parameter is frozen if it never needed a gradient and its values do not change. A script may change parameters
    without a gradient itself, as the teacher of a self-supervised model is changed with every step: so some values of
    each are looked at whenever digests are asked for, and one that has changed is not frozen.
    """

    def __init__(self) -> None:
        self._digests: dict[str, tuple[bytes, str]] = {}
        """By name: some values, and the digest of all."""
        self._changing: set[str] = set()

    def find(self, model: nn.Module) -> dict[str, FrozenPart]:
        """The frozen parameters by their names in the model's state dict."""
        found: dict[str, FrozenPart] = {}
        held = model.state_dict(keep_vars=True)
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if name in self._changing or held.get(name) is not parameter:  # a wrapper may name it otherwise
                continue
            before = self._digests.get(name)
            digest = "" if parameter.requires_grad else self.digest(name, parameter)
            if not digest or (before is not None and before != self._digests[name]):
                self._changing.add(name)
            else:
                found[name] = FrozenPart(digest, parameter.detach(), loaded_dtype(parameter))
        return found

    def digest(self, name: str, parameter: Tensor) -> str:
        """Of a parameter's values, before they were rounded if they were; computed once."""
        some, source = some_values(parameter), source_of(parameter)
        if name not in self._digests or self._digests[name][0] != some:
            is_source = source is not None and source.rounded == some
            self._digests[name] = (some, source.digest if is_source and source else digest_of([parameter]))
        return self._digests[name][1]

    def replaced(self, names: Iterable[str], frozen: Container[str]) -> None:
        """These parameters have got the values of another state, in which those in `frozen` are frozen."""
        for name in names:
            self._digests.pop(name, None)
            if name not in frozen:
                self._changing.add(name)


def without(state: Mapping[str, Any], frozen: Iterable[str]) -> dict[str, Any]:
    """A model's state dict without frozen parameters, and without what belongs to one, as a quantised base's scales."""
    names = set(frozen)

    def is_frozen(name: str) -> bool:
        return name in names or any(name[:end] in names for end in _dots(name))

    return {name: value for name, value in state.items() if not is_frozen(name)}


def _dots(name: str) -> Iterator[int]:
    return (index for index, letter in enumerate(name) if letter == ".")
