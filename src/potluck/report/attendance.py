"""Which steps each worker of a run missed, and when the whole run paused, as known after a refresh."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from potluck.report.presence import Pause, find_pauses, lasting, num_steps, steps_of, without
from potluck.report.worker import Absence, WorkerEvents, absences_between, is_gone

_OVER_S: Final = 1.0  # at the end of a run, the last steps of all workers lie within this time


class Attendance:
    """Absences of workers, and pauses of the run. Made anew after each refresh; times are on the run's clock."""

    def __init__(
        self,
        workers: Mapping[str, WorkerEvents],
        ahead_s: Mapping[str, float],
        benchings: Mapping[tuple[str, int], bool],
        *,
        is_running: bool,
    ) -> None:
        self._workers = dict(workers)
        self._ahead_s = ahead_s
        self._benchings = benchings
        """By machine and step: True where the machine was benched, False where it was unbenched."""
        self._is_running = is_running
        on_one_clock = {
            name: [replace(piece, since=piece.since - ahead, until=piece.until - ahead) for piece in worker.stretches]
            for name, worker in workers.items()
            for ahead in [ahead_s.get(name, 0.0)]
        }
        self._lasting = lasting(on_one_clock)
        self._done = steps_of(piece for own in self._lasting.values() for piece in own)
        self.pauses: list[Pause] = find_pauses(
            (
                (begin - ahead_s.get(name, 0.0), end - ahead_s.get(name, 0.0))
                for name, worker in workers.items()
                for begin, end in worker.sessions
            ),
            (piece for own in on_one_clock.values() for piece in own),
        )

    @property
    def paused_s(self) -> float:
        return sum(pause.end - pause.begin for pause in self.pauses)

    @property
    def farthest(self) -> WorkerEvents | None:
        """The worker with the highest committed step; steps that a resumed run has to do again do not count."""
        return max(self._workers.values(), key=self._reached, default=None)

    def _reached(self, worker: WorkerEvents) -> tuple[int, float]:
        steps = [piece.last_step for piece in self._lasting[worker.name]]
        return max(steps, default=0), worker.state.updated_at - self._ahead_s.get(worker.name, 0.0)

    @cached_property
    def absences(self) -> dict[str, list[Absence]]:
        """By worker: when others committed steps without the worker, including an absence that still lasts."""
        farthest, last = self.farthest, self._done[-1][1] if self._done else 0
        newest_at = {name: worker.step_at - self._ahead_s.get(name, 0.0) for name, worker in self._workers.items()}
        end = max((at for name, at in newest_at.items() if self._workers[name].step_at), default=0.0)
        found: dict[str, list[Absence]] = {}
        for name, worker in self._workers.items():
            pieces = self._lasting[name]
            found[name] = [self._after_pause(gap) for gap in absences_between(pieces, self._done)]
            own = steps_of(pieces)
            if not own or own[-1][1] >= last:
                continue
            since, missed = newest_at[name], last - own[-1][1]
            was_away = not self._is_running and end - since >= _OVER_S
            if was_away or is_gone(worker, farthest, missed, end - since):
                gap = Absence(since=since, until=None, first_step=own[-1][1] + 1, last_step=last, num_steps=missed)
                found[name].append(self._after_pause(gap))
        return found

    def _after_pause(self, gap: Absence) -> Absence:
        """The absence without a pause of the whole run: it begins when the other workers went on after the pause."""
        if not self.pauses:
            return gap
        missed_at = min(
            piece.since
            for own in self._lasting.values()
            for piece in own
            if piece.first_step <= gap.first_step <= piece.last_step
        )
        ends = [pause.end for pause in self.pauses if gap.since <= pause.end <= missed_at]
        return replace(gap, since=max(ends)) if ends else gap

    def missed(self, machine: str) -> tuple[int, int]:
        """How many of the run's steps no worker of the machine committed, and during how many it was benched.

        While the run goes on, steps whose events may still arrive from the machine do not count as missed.
        """
        workers = [worker for worker in self._workers.values() if worker.machine == machine]
        missed = without(self._done, steps_of(piece for worker in workers for piece in self._lasting[worker.name]))
        if self._is_running and machine not in self.gone():
            reached = max((self._reached(worker)[0] for worker in workers), default=0)
            missed = [span for span in missed if span[0] <= reached]
        return num_steps(missed), num_steps(span for span in missed if self.was_benched(machine, span[0]))

    def was_benched(self, machine: str, step: int) -> bool:
        """Whether the machine's last bench or unbench event up to that step was a bench."""
        told = [(at, is_down) for (who, at), is_down in self._benchings.items() if who == machine and at <= step]
        return max(told, default=(0, False))[1]

    def gone(self) -> list[str]:
        """Machines with a worker that misses the newest steps."""
        ended = (name for name, gaps in self.absences.items() if gaps and gaps[-1].until is None)
        return list(dict.fromkeys(self._workers[name].machine for name in ended))

    def gaps(self) -> list[tuple[str, Absence]]:
        """Absences with their machines, without those that begin while the machine is benched."""
        return [
            (self._workers[name].machine, gap)
            for name, gaps in self.absences.items()
            for gap in gaps
            if not self.was_benched(self._workers[name].machine, gap.first_step)
        ]
