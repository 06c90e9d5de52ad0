"""What happened in a run, line by line: comings and goings, plans and their reasons, notices; the last some hundred."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from potluck.events.types import (
    AnyEvent,
    MachineBenched,
    MachineUnbenched,
    Notice,
    PlanChanged,
    RunResumed,
    RunStarted,
)
from potluck.report.worker import Absence

_MOST_KEPT: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of a run's history."""

    time: float
    machine: str
    kind: str
    text: str


class History:
    """Lines from the events of all workers: what every worker says is told once."""

    def __init__(self) -> None:
        self._lines: deque[Happening] = deque(maxlen=_MOST_KEPT)
        self._told: set[tuple[str, str]] = set()

    def take(self, at: float, event: AnyEvent, *, machine: str, has_started: bool) -> None:
        """An event of a worker on that machine, which may have started before; most kinds are no line."""
        match event:
            case RunStarted(machine=machine, device=device):
                kind = "restarted" if has_started else "joined"
                self._lines.append(Happening(time=at, machine=machine, kind=kind, text=f"{kind}, a worker on {device}"))
            case RunResumed(step=step, checkpoint=checkpoint):
                self._tell(at, machine, "resumed", f"goes on after step {step} from {checkpoint}")
            case PlanChanged(step=step, shares=shares, reason=reason) if reason:
                split = ", ".join(f"{name} {share}" for name, share in shares.items())
                self._tell(at, "", "plan", f"from step {step}: {split} ({reason})")
            case MachineBenched(machine=who, reason=reason, step=step):
                self._tell(at, who, "benched", f"{who} is benched from step {step}: {reason}")
            case MachineUnbenched(machine=who, reason=reason, step=step):
                self._tell(at, who, "unbenched", f"{who} takes part again from step {step}: {reason}")
            case Notice(text=text):
                self._tell(at, machine, "notice", text)

    def with_absences(self, absences: Iterable[tuple[str, Absence]]) -> list[Happening]:
        """All lines and the goings and returns of machines, in the order of time."""
        lines = list(self._lines)
        for machine, gap in absences:
            lines.append(Happening(time=gap.since, machine=machine, kind="left", text=f"gone at step {gap.first_step}"))
            if gap.until is not None:
                missed = gap.last_step - gap.first_step + 1
                text = f"back at step {gap.last_step + 1}; {missed} steps were done without it"
                lines.append(Happening(time=gap.until, machine=machine, kind="back", text=text))
        return sorted(lines, key=lambda line: line.time)

    def _tell(self, at: float, machine: str, kind: str, text: str) -> None:
        if (kind, text) not in self._told:
            self._told.add((kind, text))
            self._lines.append(Happening(time=at, machine=machine, kind=kind, text=text))
