"""The cards of a run: how busy each was, its memory and power, and the samples that a joule of energy has trained."""

from dataclasses import dataclass
from typing import Final

from potluck.core.cards import label
from potluck.core.words import listed
from potluck.report.view import RunView
from potluck.report.words import percent
from potluck.report.worker import WorkerEvents

_GIB: Final = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One worker's card over the run; None where the driver does not tell."""

    machine: str
    worker: str
    card: str
    busy: float | None
    """Fraction of the time in which the card computed, 0 to 1, sampled every few seconds."""
    memory_bytes: int | None
    """The most that was in use, by all programs."""
    memory_total_bytes: int | None
    power_w: float | None
    measured_s: float
    """The time that the samples cover."""

    @property
    def memory_part(self) -> float | None:
        if self.memory_bytes is None or not self.memory_total_bytes:
            return None
        return self.memory_bytes / self.memory_total_bytes

    @property
    def memory_text(self) -> str:
        if self.memory_bytes is None or not self.memory_total_bytes:
            return ""
        return f"{self.memory_bytes / _GIB:.1f} of {self.memory_total_bytes / _GIB:.1f} GiB"

    @property
    def busy_text(self) -> str:
        return "" if self.busy is None else percent(self.busy)

    @property
    def power_text(self) -> str:
        return "" if self.power_w is None else f"{self.power_w:.0f} W"


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy of a run's steps."""

    joules: float
    power_w: float
    """Of all machines together, while they trained."""
    samples_per_joule: float
    without: tuple[str, ...]
    """Machines whose processors' power is not known: only their cards are counted."""
    counts_processors: bool

    @property
    def text(self) -> str:
        of = "of cards and processors" if self.counts_processors else "of the cards only"
        if self.counts_processors and self.without:
            of += f", without the processors of {listed(self.without)}"
        return f"{self.samples_per_joule:,.3g} samples per joule at {self.power_w:,.0f} W, {of}"


def card_rows(view: RunView) -> tuple[CardRow, ...]:
    """A row for each worker that trains on a card whose driver reports its load."""
    rows = []
    for worker in view.merge.workers.values():
        load = worker.load.card_of(worker.state)
        if load is not None:
            rows.append(
                CardRow(
                    machine=worker.machine,
                    worker=worker.name,
                    card=worker.state.card or label("card", {"card": load.name}),
                    busy=load.busy.value,
                    memory_bytes=load.memory_bytes,
                    memory_total_bytes=load.memory_total_bytes,
                    power_w=load.power_w.value,
                    measured_s=load.busy.seconds,
                )
            )
    return tuple(rows)


def energy_of(view: RunView) -> Energy | None:
    """The energy of the run's steps; None unless the power of every device that trained is known.

    joules = the sum over workers of the mean power of the card times the seconds in steps, and the same for the
    processors of each machine. What mainboards, memory and power supplies take is not counted.
    """
    trained = [worker for worker in view.merge.workers.values() if worker.state.samples_seen]
    cards_j: dict[str, float] = {}
    for worker in trained:
        card = worker.load.card_of(worker.state)
        power_w = None if card is None else card.power_w.value
        if power_w is None and worker.state.device != "cpu":
            return None
        cards_j[worker.name] = (power_w or 0.0) * worker.state.training_s
    processors_j = _processors_j(trained)
    without = dict.fromkeys(worker.machine for worker in trained if worker.machine not in processors_j)
    if not trained or any(worker.machine in without for worker in trained if worker.state.device == "cpu"):
        return None
    joules = sum(cards_j.values()) + sum(processors_j.values())
    state = max((worker.state for worker in trained), key=lambda one: one.samples_seen)
    if not joules or not state.training_s:
        return None
    return Energy(
        joules=joules,
        power_w=joules / state.training_s,
        samples_per_joule=state.samples_seen / joules,
        without=tuple(without),
        counts_processors=bool(processors_j),
    )


def _processors_j(workers: list[WorkerEvents]) -> dict[str, float]:
    """By machine whose processors' power is known: their joules while a worker of the machine was in a step."""
    found: dict[str, float] = {}
    for worker in workers:
        power_w = worker.load.cpu_power_w.value
        if power_w is not None:
            found[worker.machine] = max(found.get(worker.machine, 0.0), power_w * worker.state.training_s)
    return found
