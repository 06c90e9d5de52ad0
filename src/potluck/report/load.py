"""The load of a worker's machine over a run: means of its cards and processors, in memory that does not grow."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from potluck.core.cards import labels
from potluck.events.state import RunState
from potluck.events.types import GpuUse, MachineUsed

_USUAL_S: Final = 5.0
_MOST_S: Final = 10.0  # the first measurement of a process also covers the time before its first step


@dataclass(slots=True)
class Mean:
    """A mean over time of a value that is not always known."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        if value is not None:
            self.total += value * seconds
            self.seconds += seconds

    @property
    def value(self) -> float | None:
        return self.total / self.seconds if self.seconds else None


@dataclass(slots=True)
class CardLoad:
    """One card of a machine over the run."""

    name: str
    id: str
    busy: Mean = field(default_factory=Mean)
    power_w: Mean = field(default_factory=Mean)
    memory_bytes: int | None = None
    """The most that was in use."""
    memory_total_bytes: int | None = None

    def add(self, use: GpuUse, seconds: float) -> None:
        self.busy.add(use.busy, seconds)
        self.power_w.add(use.power_w, seconds)
        if use.memory_bytes is not None:
            self.memory_bytes = max(self.memory_bytes or 0, use.memory_bytes)
        self.memory_total_bytes = use.memory_total_bytes or self.memory_total_bytes


@dataclass(slots=True)
class MachineLoad:
    """Sums of one worker's MachineUsed events."""

    cards: list[CardLoad] = field(default_factory=list)
    cpu_power_w: Mean = field(default_factory=Mean)
    seconds: float = 0.0

    def add(self, used: MachineUsed) -> None:
        seconds = min(_MOST_S, used.seconds or _USUAL_S)
        self.seconds += seconds
        self.cpu_power_w.add(used.cpu_power_w, seconds)
        for index, use in enumerate(used.gpus):
            if index == len(self.cards):
                self.cards.append(CardLoad(name=use.name, id=use.id))
            self.cards[index].add(use, seconds)

    def card_of(self, state: RunState) -> CardLoad | None:
        """The card that a worker of this machine trains on; None for the CPU, and where the driver says nothing."""
        index = own_card(state, [(card.name, card.id) for card in self.cards])
        return None if index is None else self.cards[index]


def own_card(state: RunState, cards: Iterable[tuple[str, str]]) -> int | None:
    """Which of a machine's cards, as (name, UUID), a worker trains on: that of its UUID, else that of its label."""
    known = list(cards)
    if state.device in ("", "cpu") or not known:
        return None
    if state.card_id:
        ids = [card_id.removeprefix("GPU-") for _, card_id in known]
        if state.card_id.removeprefix("GPU-") in ids:
            return ids.index(state.card_id.removeprefix("GPU-"))
    called = labels({str(index): name for index, (name, _) in enumerate(known)})
    if state.card in called.values():
        return list(called.values()).index(state.card) if len(called) == len(known) else None
    return 0 if len(known) == 1 and not state.card else None
