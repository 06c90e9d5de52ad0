"""The frozen parameters of a run that a worker lacks: from its own disk if it had them before, else from a peer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck.core.errors import GroupError
from potluck.engine.compute.frozen import FrozenPart
from potluck.engine.compute.frozen_cache import FrozenCache


class Lacking(NamedTuple):
    """The frozen parameters of a state that are others here, or are not frozen here: room for each, by name."""

    digests: dict[str, str]
    kept: dict[str, Tensor]
    """Those that are on this machine's disk."""
    asked: dict[str, Tensor]
    """Those that the peer is asked for."""

    def describe(self) -> str:
        """Where they come from, for a person."""
        ways = ((self.asked, "another machine"), (self.kept, "this machine's disk"))
        sizes = [(sum(one.nbytes for one in some.values()) / 1e6, where) for some, where in ways if some]
        return " and ".join(f"{size:,.1f} MB from {where}" for size, where in sizes)


@dataclass(slots=True, kw_only=True)
class OwnParameters:
    """This worker's parameters, and what it keeps of other machines' frozen ones."""

    frozen: Callable[[], Mapping[str, FrozenPart]] = dict
    values: Callable[[], Mapping[str, Tensor]] = dict
    cache: FrozenCache | None = None
    say: Callable[[str], None] = lambda _: None

    def find_lacking(self, state: Any) -> Lacking:
        """Compare a peer's digests of frozen parameters with those here."""
        told = state.get("user", {}).get("default", {}) if isinstance(state, dict) else {}
        theirs: dict[str, str] = told.get("frozen", {})
        if not theirs:
            return Lacking({}, {}, {})
        mine, values = self.frozen(), self.values()
        digests = {name: one for name, one in theirs.items() if name not in mine or mine[name].digest != one}
        if unknown := [name for name in digests if name not in values]:
            raise GroupError(
                f"another machine's model has {unknown[0]}, and the model here has not",
                fix="run the same script on every machine",
            )
        lacking = Lacking(digests, {}, {})
        for name, digest in digests.items():
            room = torch.empty(values[name].shape, dtype=mine[name].dtype if name in mine else values[name].dtype)
            is_kept = self.cache is not None and self.cache.has(digest, room.nbytes)
            (lacking.kept if is_kept else lacking.asked)[name] = room
        if lacking.asked and (precision := told.get("frozen_precision")):
            raise GroupError(
                f"it keeps its frozen parameters in {precision}, and those here are others",
                fix="load the same base on every machine, or start one that keeps the base as it was loaded first",
            )
        return lacking

    def complete(self, lacking: Lacking) -> dict[str, Tensor]:
        """The values of what was lacking, after the peer has sent what it was asked for.

        ConnectionError if a file on disk is damaged: the next try asks a peer for it.
        """
        if not lacking.digests:
            return {}
        if self.cache is not None:
            for name, room in lacking.kept.items():
                if not self.cache.read(lacking.digests[name], room):
                    raise ConnectionError(f"the frozen parameter {name} on this machine's disk was damaged")
            self.cache.keep({lacking.digests[name]: values for name, values in lacking.asked.items()})
        self.say(f"the frozen parameters here were not the run's: took {lacking.describe()}")
        return lacking.asked | lacking.kept

    def close(self) -> None:
        """Wait until what came from others is on disk."""
        if self.cache is not None:
            self.cache.close()
