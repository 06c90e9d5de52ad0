"""Does the self-test of one machine: starts worker processes, does one check after the other, and fills the table."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from potluck.core.environment import quieten_torchft, read_environment
from potluck.core.errors import MeasureError
from potluck.machine.hardware import read_processor
from potluck.selftest.catalogue import PlannedCheck, fix_for, plan_checks
from potluck.selftest.crews import crews_of
from potluck.selftest.orders import Describe, Described, Failed
from potluck.selftest.processes import WorkerPool
from potluck.selftest.rows import Row
from potluck.selftest.training import CheckFailedError, SmallRuns


@dataclass(slots=True)
class SelfTest:
    """The self-test of this machine while it goes on."""

    seen: Described
    planned: list[PlannedCheck]
    _runs: SmallRuns

    def rows(self) -> Iterator[Row]:
        """Do the planned checks one after the other."""
        for planned in self.planned:
            yield self.do(planned)

    def alone(self, device: str, precision: str, epochs: int) -> tuple[float, ...]:
        """The parameters that one process of this machine comes to."""
        return self._runs.alone(device, precision, epochs).parameters

    def do(self, planned: PlannedCheck) -> Row:
        """Do one check; an error becomes a failed row."""
        if planned.reason:
            machine = self._runs.machine
            return Row(check=planned.check, where=planned.where, result="left out", why=planned.reason, machine=machine)
        began = time.monotonic()
        try:
            row = planned.do(self._runs)
        except CheckFailedError as error:
            row = Row(check=planned.check, where=planned.where, result="failed", why=str(error), fix=error.fix)
        fix = row.fix or fix_for(row.check) if row.result == "failed" else ""
        return msgspec.structs.replace(
            row, fix=fix, seconds=round(time.monotonic() - began, 2), machine=self._runs.machine
        )


@contextmanager
def begin(*, only: Sequence[str] = (), is_quick: bool = False) -> Iterator[SelfTest]:
    """Start worker processes and look at torch's devices; all processes and files are gone at the end of the block."""
    quieten_torchft()
    with tempfile.TemporaryDirectory(prefix="potluck-selftest-") as place, WorkerPool(Path(place)) as pool:
        spare = 1 if not only or "healing" in only else 0  # takes the place of a killed one
        pool.take(2 + spare)  # so that all import torch at the same time
        machine = read_environment().machine
        runs = SmallRuns(pool, Path(place), machine, max(1, int(read_processor().usable_cores)))
        seen = runs.ask(Describe())
        if not isinstance(seen, Described):
            why = seen.error if isinstance(seen, Failed) else "it gives another answer"
            raise MeasureError(f"torch cannot be used on {machine}: {why}", fix="potluck doctor")
        pool.take(spare + max(len(crew.devices) for crew in crews_of(seen.devices, seen.backends)))
        yield SelfTest(seen, plan_checks(seen, only=only, is_quick=is_quick), runs)
