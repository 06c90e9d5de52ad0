"""Records a few steps of a worker with torch.profiler, and writes them as a trace file into the run's folder.

The trace covers the fifth to the eighth step of a process, after a step that warms the profiler up. Its JSON is
packed and summed up on another thread. The steps that all this slows down are marked: no fit and no account uses them.
"""

import gzip
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import profile, schedule, supported_activities

from potluck.core.environment import quieten_kineto
from potluck.core.words import counted
from potluck.engine.steps.operator_costs import operator_costs
from potluck.events.types import AnyEvent, Notice, StepsTraced

STEPS_BEFORE = 3  # their operators are loaded, and the split of the batch has settled
STEPS_TRACED = 4
_MOST_CALLS = 400_000  # of operators; a call takes about 300 bytes of JSON and 20 of a packed file
MOST_TRACE_BYTES = 32 << 20


class StepTracer:
    """Profiles this worker's steps once; called between steps by the thread that trains."""

    def __init__(self, trace_file: Callable[[int, int], Path], tell: Callable[[AnyEvent], None]) -> None:
        self._trace_file = trace_file
        """The path of a trace, by its first and last step."""
        self._tell = tell
        self._num_steps = 0
        self._profile: profile | None = None
        self._writing: threading.Thread | None = None
        self.disturbs = False
        """Whether profiling, or the writing of a trace, slows down the step that is being trained."""

    def step_ended(self, step: int) -> None:
        """Called after each committed step of this process: start, go on or end the recording."""
        self._num_steps += 1
        was_recording = self._profile is not None
        try:
            if self._num_steps == STEPS_BEFORE and torch._C._autograd._profiler_enabled():
                self._say("no trace of steps: a profiler of the script is at work, and there can be only one")
            elif self._num_steps == STEPS_BEFORE:
                self._start()
            elif self._profile is not None:
                self._profile.step()
                if self._num_steps == STEPS_BEFORE + 1 + STEPS_TRACED:
                    self._end(step)
        except Exception as error:  # noqa: BLE001  a profiler that fails must not end the training
            self._profile = None
            self._say(f"no trace of steps: torch.profiler says {type(error).__name__}: {error}")
        is_writing = self._writing is not None and self._writing.is_alive()
        self.disturbs = was_recording or self._profile is not None or is_writing

    def close(self, step: int) -> None:
        """End a recording that is under way, and wait until its file is written."""
        if self._profile is not None and self._num_steps > STEPS_BEFORE + 1:
            self._end(step)
        elif self._profile is not None or (0 < self._num_steps < STEPS_BEFORE):
            if self._profile is not None:
                self._profile.stop()
                self._profile = None
            self._say(
                f"no trace of steps: the run has ended after {counted(self._num_steps, 'step')}, too soon for one"
            )
        if self._writing is not None:
            self._writing.join()
            self._writing = None

    def _start(self) -> None:
        quieten_kineto()
        plan = schedule(wait=0, warmup=1, active=STEPS_TRACED, repeat=1)
        activities = supported_activities()  # type: ignore[no-untyped-call]
        self._profile = profile(activities=activities, schedule=plan)
        self._profile.start()

    def _end(self, last_step: int) -> None:
        assert self._profile is not None
        recorded, self._profile = self._profile, None
        recorded.stop()
        first_step = last_step - (self._num_steps - STEPS_BEFORE - 1) + 1
        self._writing = threading.Thread(
            target=self._write, args=(recorded, first_step, last_step), name="potluck-trace", daemon=True
        )
        self._writing.start()

    def _write(self, recorded: profile, first_step: int, last_step: int) -> None:
        try:
            self._tell(_write_trace(recorded, self._trace_file(first_step, last_step), first_step, last_step))
        except Exception as error:  # noqa: BLE001  a full disk, or a trace that cannot be read, ends no training
            self._say(f"no trace of steps {first_step} to {last_step}: {type(error).__name__}: {error}")

    def _say(self, text: str) -> None:
        self._tell(Notice(text=text))


def _write_trace(recorded: Any, path: Path, first_step: int, last_step: int) -> StepsTraced:
    """Write the packed trace under its final name at once, and sum up its operators."""
    num_calls = len(recorded.profiler.kineto_results.events())
    if num_calls > _MOST_CALLS:
        left_out = f"its {num_calls:,} calls of operators are more than the {_MOST_CALLS:,} that a trace file may have"
        return StepsTraced(first_step=first_step, last_step=last_step, left_out=left_out)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw, packed = path.with_name(f".{path.name}.json"), path.with_name(f".{path.name}")
    try:
        recorded.export_chrome_trace(str(raw))
        trace = raw.read_bytes()
        packed.write_bytes(gzip.compress(trace, compresslevel=6))
        num_bytes, file, left_out = packed.stat().st_size, f"{path.parent.name}/{path.name}", ""
        if num_bytes > MOST_TRACE_BYTES:
            file, left_out = "", f"its {num_bytes >> 20} MiB are more than {MOST_TRACE_BYTES >> 20} MiB"
        else:
            packed.rename(path)
    finally:
        raw.unlink(missing_ok=True)
        packed.unlink(missing_ok=True)
    return StepsTraced(
        first_step=first_step,
        last_step=last_step,
        file=file,
        num_bytes=num_bytes,
        left_out=left_out,
        operators=operator_costs(trace, last_step - first_step + 1),
    )
