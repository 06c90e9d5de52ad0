"""What a worker needs to be in a group: its name, where it listens, access to its training state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from potluck.core.exchange_options import IN_ROUNDS, may_be_rounds
from potluck.core.run_options import RunOptions
from potluck.engine.compute.frozen import FrozenPart
from potluck.engine.compute.frozen_cache import FrozenCache
from potluck.engine.group.listening import Listening


def code_of(mode: str) -> str:
    """How values travel in this mode of exchange; in rounds as int4, and so they do in the warm-up."""
    return "int4" if mode in IN_ROUNDS else mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeWish:
    """The run's options of how gradients or weights travel; all workers of a run must have the same."""

    name: str = "exact"
    """exact, fp16, int8, int4, rounds, islands, or auto: the fastest within `loss_price`."""
    loss_price: float = 0.0
    """By how many percent the loss may end higher, for auto."""
    round_steps: int | None = None
    """Steps of a round; None: as many as the measured exchange asks for."""
    warm_up_steps: int | None = None
    """Steps before the first round; None: by rule."""
    islands: str = ""
    """Machines with good links to each other, as the user names them: rosa+lily,fern+moss."""

    @classmethod
    def of(cls, options: RunOptions) -> "ExchangeWish":
        return cls(
            name=options.exchange,
            loss_price=options.loss_price,
            round_steps=options.round_steps,
            warm_up_steps=options.warm_up_steps,
            islands=options.islands or "",
        )

    @property
    def partition(self) -> tuple[tuple[str, ...], ...]:
        """The machines of each island that the user names."""
        return tuple(tuple(island.split("+")) for island in self.islands.split(",") if island)

    @property
    def may_be_rounds(self) -> bool:
        """Whether the run may train in rounds."""
        return may_be_rounds(self.name)

    @property
    def code(self) -> str:
        """How gradients travel unless a group chooses another mode: exact, fp16, int8 or int4."""
        return code_of("exact" if self.name == "auto" else self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This worker's place in a group."""

    name: str
    machine: str
    lighthouse: str
    secret: bytes
    listening: Listening
    share: int | None = None
    expected: int = 1
    """How many workers to wait for before the very first step."""
    backend: str = "auto"
    exchange: ExchangeWish = ExchangeWish()
    device: torch.device
    host: str = ""
    """The machine that hosts the run; empty if none does."""
    lan_address: str = ""
    """Where other machines reach this machine past its gate; empty if it is not known."""
    nccl_log: Path = Path("nccl.log")
    """Where NCCL's messages go if NCCL_DEBUG asks for many."""
    frozen_cache: FrozenCache | None = None
    """Where frozen parameters of other machines are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The functions that read this worker's training state for a peer, and replace it by a peer's."""

    read: Callable[[], dict[str, Any]]
    replace: Callable[[dict[str, Any]], None]
    frozen: Callable[[], Mapping[str, FrozenPart]] = dict
    """What of the model no step changes, by name. The state has digests of it; values travel to who lacks them."""
    values: Callable[[], Mapping[str, Tensor]] = dict
    """The model's parameters and buffers by name."""
