"""What each machine of a run does now: its share of the samples, whether others wait for it, benched or away."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from potluck.planning.explain import seconds_text
from potluck.report.ledger import Floats
from potluck.report.merge import Merge
from potluck.report.timeline import COLUMNS

_RECENT_STEPS: Final = 20
_AWAY_S: Final = 10.0
_MUCH: Final = 0.15
"""A machine is slow if the others wait for it longer than this fraction of a step."""
_STATES: Final = ("training", "benched", "away")
_STEPS, _SAMPLES, _OWN, _SECONDS = (COLUMNS.index(name) for name in ("steps", "samples", "own_samples", "seconds"))
_OWN_WORK: Final = [COLUMNS.index(name) for name in ("data_wait", "compute", "commit", "rest")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineNow:
    """The share and the state of one machine now."""

    machine: str
    part: float
    """The machine's fraction of the samples of its last steps, 0 to 1."""
    others_wait_s: float
    """Seconds a step that the other machines wait for this machine; 0 if that is little."""
    state: str
    """training, benched or away."""
    samples_per_s: float = 0.0
    """The machine's own samples a second in its last steps."""

    @property
    def text(self) -> str:
        if self.state != "training":
            return f"{self.machine} {self.state}"
        slow = f" (slow: the others wait {seconds_text(self.others_wait_s)} a step)" if self.others_wait_s else ""
        return f"{self.machine} {100 * self.part:.0f} %{slow}"


def machines_now(merge: Merge, benched: Collection[str]) -> list[MachineNow]:
    """Every machine that has committed a step, in the order of `merge.workers`."""
    last_at = {name: worker.step_at - merge.ahead_s(name) for name, worker in merge.workers.items() if worker.recent}
    newest_at = max(last_at.values(), default=0.0)
    states: dict[str, str] = {}
    sums: dict[str, list[Floats]] = {}
    for name, at in last_at.items():
        worker = merge.workers[name]
        is_away = worker.machine in merge.left or newest_at - at > _AWAY_S
        state = "benched" if worker.machine in benched else "away" if is_away else "training"
        states[worker.machine] = min(state, states.get(worker.machine, state), key=_STATES.index)
        rows = [row for _, row in worker.recent][-_RECENT_STEPS:]
        sums.setdefault(worker.machine, []).append(np.sum(rows, axis=0))
    waits_s = _waits_s({machine: of for machine, of in sums.items() if states[machine] == "training"})
    return [
        MachineNow(
            machine=machine,
            part=sum(float(of[_OWN] / of[_SAMPLES]) for of in sums[machine] if of[_SAMPLES]),
            others_wait_s=waits_s.get(machine, 0.0),
            state=state,
            samples_per_s=sum(float(of[_OWN] / of[_SECONDS]) for of in sums[machine] if of[_SECONDS]),
        )
        for machine, state in states.items()
    ]


def machines_line(merge: Merge, benched: Collection[str], expected: Collection[str] = ()) -> str:
    """All machines in one line, with the `expected` ones that have no step yet; empty for a run on one machine."""
    told = {machine.machine: machine.text for machine in machines_now(merge, benched)}
    silent = [f"{name} {'benched' if name in benched else 'no step yet'}" for name in expected if name not in told]
    return f"shares: {', '.join([*told.values(), *silent])}" if told and len(told) + len(silent) > 1 else ""


def speeds_line(merge: Merge, benched: Collection[str], global_batch: int) -> str:
    """Each training machine's samples of a global batch and its speed; empty for a run on one machine."""
    training = [one for one in machines_now(merge, benched) if one.state == "training"]
    parts = [f"{one.machine} {one.part * global_batch:.0f}, {one.samples_per_s:,.0f} samples/s" for one in training]
    return f"  of {global_batch}: {'; '.join(parts)}" if len(parts) > 1 else ""


def _waits_s(sums: dict[str, list[Floats]]) -> dict[str, float]:
    """The slowest machine, and by how many seconds a step it is slower than the next; empty if that is little."""
    own_s = {machine: max(float(of[_OWN_WORK].sum() / of[_STEPS]) for of in found) for machine, found in sums.items()}
    if len(own_s) < 2:
        return {}
    *_, next_s, longest_s = sorted(own_s.values())
    step_s = max(float(of[_SECONDS] / of[_STEPS]) for found in sums.values() for of in found)
    slowest = max(own_s, key=lambda machine: own_s[machine])
    return {slowest: longest_s - next_s} if longest_s - next_s > _MUCH * step_s else {}
