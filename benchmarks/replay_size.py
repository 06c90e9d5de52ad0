"""How long and how much memory a large run takes to read: by default 10 million events of 200 workers.

    python -m benchmarks.replay_size --into /tmp/large

It writes the run unless it is there, reads it, and then refreshes after every worker has written ten more steps. With
--page it does the same with the dashboard's page of the run, as Streamlit makes it.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

from potluck.core.run_folder import RunFolder
from potluck.events.log import EventLog
from potluck.events.types import (
    MachineUsed,
    PlanChanged,
    Record,
    RunStarted,
    StepCommitted,
    StepTiming,
    TrainingBegan,
)
from potluck.report.view import RunView

STEP_S = 0.5
STEPS_A_USE = 10  # a machine tells of its use every five seconds
REPLAN_EVERY = 5000
REFRESHES = 5
encode = msgspec.json.Encoder().encode


def main() -> None:
    """Write, read, refresh, and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True, help="the folder that gets the run `large`")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--page", action="store_true", help="measure the dashboard's page instead of the reading")
    options = parser.parse_args()
    folder = RunFolder(options.into / "large")
    steps = options.events * STEPS_A_USE // (STEPS_A_USE + 1) // options.workers
    if not folder.settings_file.exists():
        write_run(folder, options.workers, steps)
    figures = measure_page(folder, options.workers) if options.page else measure_reading(folder, options.workers)
    json.dump({"benchmark": "replay_size", "workers": options.workers, **figures}, sys.stdout)
    print()


def measure_reading(folder: RunFolder, workers: int) -> dict[str, object]:
    """All of it, and then what is new."""
    began = time.perf_counter()
    view = RunView(folder)
    view.refresh()
    account = view.account()
    read_s = time.perf_counter() - began
    assert account is not None
    write_more(folder, workers, view.state.step)
    began = time.perf_counter()
    num_new = view.refresh()
    again = view.account()
    view.series()
    view.happenings()
    refresh_s = time.perf_counter() - began
    assert again is not None
    return {
        "events": view.merge.num_events - num_new,
        "bytes": sum(file.stat().st_size for file in folder.event_files()),
        "read_s": round(read_s, 2),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "refresh_s": round(refresh_s, 3),
        "new_events": num_new,
        "num_steps": again.num_steps,
        "samples_per_s": round(again.samples_per_s, 1),
    }


def measure_page(folder: RunFolder, workers: int) -> dict[str, object]:
    """The page's first time, and then as a run that trains is refreshed."""
    from streamlit.testing.v1 import AppTest  # noqa: PLC0415

    from potluck.dashboard.launching import APP  # noqa: PLC0415

    sys.argv = [str(APP), str(folder.path.parent)]
    app = AppTest.from_file(str(APP), default_timeout=300)
    app.query_params |= {"page": "Run", "run": folder.name}
    with closing(EventLog(folder.event_file("machine000", 0))):  # somebody trains it
        times_s = [_seconds(app.run)]
        for _ in range(REFRESHES):
            write_more(folder, workers, int(app.metric[0].value.replace(",", "")))
            times_s.append(_seconds(app.run))
    assert not app.exception
    (first_s, _), again = times_s[0], times_s[1:]
    return {
        "first_page_s": round(first_s, 2),
        "page_s": [round(wall_s, 3) for wall_s, _ in again],
        "page_cpu_s": [round(cpu_s, 3) for _, cpu_s in again],
    }


def _seconds(act: Callable[[], object]) -> tuple[float, float]:
    """By the wall's clock and by this process's: other work on the computer adds to the first only."""
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu


def write_more(folder: RunFolder, workers: int, last: int) -> None:
    """Ten more steps of every worker."""
    for worker in range(workers):
        with folder.event_file(f"machine{worker:03d}", 0).open("ab") as file:
            file.writelines(step_lines(worker, workers, range(last + 1, last + 11)))


def write_run(folder: RunFolder, workers: int, steps: int) -> None:
    """Steps with timings as a run of that size would have them, and a new plan now and then."""
    folder.event_file("x", 0).parent.mkdir(parents=True)
    names = [f"machine{worker:03d}" for worker in range(workers)]
    for worker, name in enumerate(names):
        with folder.event_file(name, 0).open("wb", buffering=1 << 20) as file:
            started = RunStarted(
                run="large", machine=name, worker=0, process_id=1, device="cpu", mixed_precision="no", versions={}
            )
            length = TrainingBegan(
                num_samples=1 << 20, global_batch=32 * workers, steps_per_epoch=1000, num_epochs=50, last_step=steps
            )
            file.write(line(0, 0.0, started) + line(1, 0.0, length))
            for begin in range(1, steps + 1, REPLAN_EVERY):
                plan = PlanChanged(
                    step=begin,
                    policy="dynamic",
                    shares={f"{other}-0": 32 for other in names},
                    reason="",
                    step_s=STEP_S,
                    samples_per_s=32 * workers / STEP_S,
                    solo_samples_per_s={f"{other}-0": 80.0 for other in names},
                )
                file.write(line(begin + 1, begin * STEP_S, plan))
                file.writelines(step_lines(worker, workers, range(begin, min(begin + REPLAN_EVERY, steps + 1))))
    folder.settings_file.write_text("model: resnet18\n")


def step_lines(worker: int, workers: int, steps: range) -> list[bytes]:
    """One line a step, and now and then one of the machine's use."""
    compute_s = np.random.default_rng([worker, steps.start]).normal(0.4, 0.02, len(steps)).clip(0.3, 0.48)
    lines = []
    for step, seconds in zip(steps, compute_s.tolist(), strict=True):
        timing = StepTiming(
            data_wait_s=0.0012345678,
            compute_s=seconds,
            exchange_wait_s=0.49 - seconds,
            commit_s=0.0051234567,
            rest_s=0.0036419755,
        )
        committed = StepCommitted(
            step=step,
            epoch=step // 1000,
            samples=32 * workers,
            loss=2.0 / (1 + step * 0.001),
            seconds=STEP_S,
            own_samples=32,
            quorum_id=1,
            timing=timing,
        )
        lines.append(line(step + 1, step * STEP_S, committed))
        if step % STEPS_A_USE == 0:
            used = MachineUsed(
                cpu=seconds,
                memory_bytes=1 << 33,
                memory_total_bytes=1 << 34,
                sent_bytes_per_s=1e7,
                received_bytes_per_s=1e7,
            )
            lines.append(line(step + 1, step * STEP_S, used))
    return lines


def line(
    sequence: int, after_s: float, event: "RunStarted | TrainingBegan | PlanChanged | StepCommitted | MachineUsed"
) -> bytes:
    """As an event file has it."""
    return encode(Record(sequence=sequence, time=1_794_000_000.0 + after_s, event=event)) + b"\n"


if __name__ == "__main__":
    main()
