"""The history of a run in lines: machines that join or leave, plans with reasons, notices; the last few hundred."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from potluck.core.words import counted
from potluck.events.progress_lines import backend_lines
from potluck.events.types import (
    AnyEvent,
    BackendChosen,
    MachineBenched,
    MachineUnbenched,
    Notice,
    PlanChanged,
    RunResumed,
    RunStarted,
)
from potluck.report.presence import Pause
from potluck.report.words import duration
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
    """The newest lines, made from the events of all workers."""

    def __init__(self) -> None:
        self._lines: deque[Happening] = deque(maxlen=_MOST_KEPT)

    def take(self, at: float, event: AnyEvent, *, machine: str, has_started: bool) -> None:
        """Add a line for a worker's event; most kinds have none. `has_started`: the worker has started before."""
        match event:
            case RunStarted(machine=machine) as started:
                kind = "restarted" if has_started else "joined"
                self._add(at, machine, kind, f"{kind}, a worker on {started.place}")
            case RunResumed(step=step, checkpoint=checkpoint):
                self._add(at, machine, "resumed", f"loaded its checkpoint of step {step}, {checkpoint}")
            case PlanChanged(step=step, shares=shares, reason=reason) if reason:
                split = ", ".join(f"{name} {share}" for name, share in shares.items())
                self._add(at, "", "plan", f"from step {step}: {split} ({reason})")
            case MachineBenched(machine=who, reason=reason, step=step):
                why = reason.removeprefix(f"{who} is benched: ")
                self._add(at, who, "benched", f"benched from step {step}: {why}")
            case MachineUnbenched(machine=who, reason=reason, step=step):
                self._add(at, who, "unbenched", f"takes part again from step {step}: {reason}")
            case BackendChosen() as chosen:
                self._add(at, "", "backend", "; ".join(backend_lines(chosen)))
            case Notice(text=text):
                self._add(at, machine, "notice", text)

    def with_absences(self, absences: Iterable[tuple[str, Absence]], pauses: Iterable[Pause] = ()) -> list[Happening]:
        """All lines, with the absences and returns of machines and the run's pauses, in the order of time."""
        lines = list(self._lines)
        for machine, gap in absences:
            lines.append(Happening(time=gap.since, machine=machine, kind="left", text=f"gone at step {gap.first_step}"))
            if gap.until is not None:
                done = counted(gap.num_steps, "step was", "steps were")
                text = f"back at step {gap.last_step + 1}; {done} done without it"
                lines.append(Happening(time=gap.until, machine=machine, kind="back", text=text))
        for pause in pauses:
            text = _pause_text(pause)
            lines.append(Happening(time=pause.begin, machine="", kind="paused", text=text))
        return _without_repeated(sorted(lines, key=lambda line: line.time))

    def _add(self, at: float, machine: str, kind: str, text: str) -> None:
        self._lines.append(Happening(time=at, machine=machine, kind=kind, text=text))


def _without_repeated(lines: list[Happening]) -> list[Happening]:
    """The lines without a backend that stays: a worker that joins later writes what the others have written."""
    kept, newest = [], ""
    for line in lines:
        if line.kind != "backend" or line.text != newest:
            kept.append(line)
        newest = line.text if line.kind == "backend" else newest
    return kept


def _pause_text(pause: Pause) -> str:
    text = f"no machine trained the run for {duration(pause.end - pause.begin)}"
    if pause.resumed_after is not None:
        text += f"; it went on after step {pause.resumed_after:,}"
    if pause.num_undone:
        text += f", and {counted(pause.num_undone, 'step was', 'steps were')} done again"
    return text
