"""What a fault costs the others: every fault of the promise, on the lab's three laptops, with and without a return.

    python -m benchmarks.faults --json

Each row is a run of its own. The stall is the longest time without a committed step on a machine that stays. At the end
all workers' parameters must be the same bits, and equal one undisturbed process to 1e-8 in float64.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.support.crew import LabCrew, largest_difference, longest_gap_s, read_parameters, start_alone
from lab import Lab

VICTIM, STAYS = "lily", "rosa"
AT_STEP = 60
TOLERANCE = 1e-8


@dataclass(frozen=True)
class Fault:
    """One row: what happens, what brings the machine back, and the bar."""

    name: str
    strike: Callable[[LabCrew], None]
    back_after_s: float | None
    bring_back: Callable[[LabCrew], None] | None
    most_s: float
    steps: int = 500


def kill(crew: LabCrew) -> None:
    """SIGKILL for every process of the machine."""
    crew.lab[VICTIM].kill()


def restart(crew: LabCrew) -> None:
    """The same command again, on the same machine."""
    crew.start(VICTIM)


def leave(crew: LabCrew) -> None:
    """Ctrl-C."""
    crew.workers[VICTIM].send_signal(signal.SIGINT)


def kill_lighthouse(crew: LabCrew) -> None:
    """SIGKILL for the membership service only."""
    crew.lighthouse.kill()


FAULTS = [
    Fault("kill", kill, None, None, 2.5, steps=250),
    Fault("kill, back after 3 s", kill, 3.0, restart, 2.5),
    Fault("freeze", lambda c: c.lab[VICTIM].freeze(kernel_answers=True), None, None, 2.5, steps=250),
    Fault(
        "freeze for 15 s",
        lambda c: c.lab[VICTIM].freeze(kernel_answers=True),
        15.0,
        lambda c: c.lab[VICTIM].thaw(),
        2.5,
        steps=800,
    ),
    Fault("cable cut", lambda c: c.lab[VICTIM].cut(), None, None, 6.0, steps=250),
    Fault("cable cut for 10 s", lambda c: c.lab[VICTIM].cut(), 10.0, lambda c: c.lab[VICTIM].mend(), 6.0, steps=700),
    Fault("leave by Ctrl-C", leave, None, None, 2.5, steps=250),
    Fault("leave, back after 3 s", leave, 3.0, restart, 2.5),
    Fault("late join", restart, 0.0, lambda _: None, 2.5),
    Fault("lighthouse killed for 6 s", kill_lighthouse, 6.0, lambda c: c.start_lighthouse(), 10.0, steps=600),
]


@dataclass(frozen=True)
class Row:
    """What came of one fault."""

    fault: str
    stall_s: float
    bar_s: float
    step_s: float
    steps_lost: int
    finished: int
    same_bits: bool
    difference: float
    ok: bool


def main() -> None:
    """Run every fault, print the table, and end with one JSON line if asked; exit 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="faults whose name contains this")
    parser.add_argument("--direct", action="store_true", help="without gates, as workers without a host")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for fault in FAULTS:
        if options.only is None or options.only in fault.name:
            rows.append(row := measure(fault, is_direct=options.direct))
            print(
                f"{fault.name:26} stall {row.stall_s:5.2f} s (bar {fault.most_s}), "
                f"usual step {row.step_s:.3f} s, "
                f"steps lost {row.steps_lost}, {row.finished} finished, same bits: {row.same_bits}, "
                f"off by {row.difference:.1e}{'' if row.ok else '   MISSED'}",
                flush=True,
            )
    if options.json:
        print(json.dumps({"faults": [asdict(row) for row in rows], "missed": sum(not row.ok for row in rows)}))
    sys.exit(any(not row.ok for row in rows))


def measure(fault: Fault, *, is_direct: bool = False) -> Row:
    """One run with one fault."""
    is_late_join = fault.name == "late join"
    with tempfile.TemporaryDirectory() as scratch, Lab("laptops") as lab:
        folder = Path(scratch)
        alone = start_alone(folder / "alone", folder / "alone.pt", fault.steps)
        arguments = ["--steps", fault.steps]
        crew = LabCrew(lab, folder, arguments, expected=2 if is_late_join else 3, is_direct=is_direct)
        names = crew.machines.names
        alone.wait()  # on a busy computer it may take longer than the run
        for name in names:
            if not (is_late_join and name == VICTIM):
                crew.start(name)
        crew.workers[STAYS].expect("step 5", 60)
        crew.machines.settle(*crew.workers)
        crew.workers[STAYS].expect(f"step {AT_STEP}", 60)
        struck = time.time()
        fault.strike(crew)
        if fault.bring_back is not None and fault.back_after_s is not None:
            time.sleep(fault.back_after_s)
            fault.bring_back(crew)
        crew.workers[STAYS].wait(240)
        for name in set(names) - {STAYS, VICTIM}:
            crew.workers[name].wait(20)
        comes_back = fault.bring_back is not None
        if comes_back:
            crew.workers[VICTIM].wait(20)
        records = crew.records(STAYS)
        times = [record.time for record in records]
        before = [b - a for a, b in pairwise(times) if b < struck]
        stall_s = longest_gap_s(records, struck, times[-1])
        results = {name: read_parameters(crew.result(name)) for name in names if crew.result(name).exists()}
        difference = largest_difference(read_parameters(folder / "alone.pt"), results[STAYS])
        same_bits = all(largest_difference(results[STAYS], one) == 0 for one in results.values())
        # A machine that was away misses some steps that the others have; a step that nobody has is lost.
        lost = len(set(range(1, fault.steps + 1)) - {event.step for name in names for event in crew.steps(name)})
        ok = stall_s <= fault.most_s and lost == 0 and same_bits and difference <= TOLERANCE
        return Row(
            fault=fault.name,
            stall_s=round(stall_s, 3),
            bar_s=fault.most_s,
            step_s=round(sorted(before)[len(before) // 2], 4),
            steps_lost=lost,
            finished=len(results),
            same_bits=same_bits,
            difference=difference,
            ok=ok and len(results) >= (3 if comes_back else 2),
        )


if __name__ == "__main__":
    main()
