"""The process that holds a machine's workers: it imports torch once, and every worker starts from there at once.

    python -m potluck.meeting.crew

Orders come as JSON lines on stdin, news goes out as JSON lines on stdout. When stdin ends, whoever gave the orders is
gone: the workers stop after their step.
"""

import gc
import json
import os
import select
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from potluck.core.environment import quieten_torchft
from potluck.core.errors import PotluckError
from potluck.meeting.crash import Crash
from potluck.meeting.crew_line import STEP_S
from potluck.meeting.workers import WorkerOrder, WorkerProcesses, WorkerStatus
from potluck.meeting.working import work

_POLL_S = 0.05


class Crew:
    """The workers of this machine, run by run."""

    def __init__(self) -> None:
        self._runs: dict[str, WorkerProcesses] = {}
        self._patience_s = STEP_S
        self._told: dict[tuple[str, str], WorkerStatus] = {}

    def obey(self, order: dict[str, Any]) -> None:
        """Start a run's workers, in the place of those that may be there, or ask them to stop."""
        if "start" in order:
            self._start(order["start"])
        elif "patience_s" in order:
            self._patience_s = float(order["patience_s"])
        elif order.get("stop") in self._runs:
            self._runs[order["stop"]].ask_to_stop()

    def _start(self, order: dict[str, Any]) -> None:
        run, place = order["run"], Path(order["folder"])
        if run in self._runs:
            self._runs[run].stop(after_step=False, end_s=0)
        self._told = {key: status for key, status in self._told.items() if key[0] != run}
        orders = [
            WorkerOrder(number=int(number), command=partial(work, order["task"], place), variables=variables)
            for number, variables in order["workers"].items()
        ]
        self._runs[run] = WorkerProcesses(order["machine"], Path(order["run_folder"]), orders, folder=place)
        try:
            self._runs[run].start()
        except PotluckError as error:
            for number in order["workers"]:
                say(run=run, worker=int(number), state="failed", message=str(error), restarts=0)

    def poll(self) -> None:
        """Look at everybody once, and tell what has changed."""
        for run, processes in self._runs.items():
            crashes = {crash.worker: crash for crash in processes.poll()}
            for status in processes.statuses():
                if self._told.get((run, status.worker)) != status:
                    self._told[run, status.worker] = status
                    tell(run, status, crashes.get(status.worker))

    def stop_all(self) -> None:
        for processes in self._runs.values():
            processes.ask_to_stop()
        for processes in self._runs.values():
            processes.stop(step_s=self._patience_s)


def main() -> None:
    """Warm up, then take orders until stdin ends."""
    warm_up()
    say(ready=True)
    crew, buffer = Crew(), b""
    try:
        while True:
            if select.select([0], [], [], _POLL_S)[0]:
                received = os.read(0, 1 << 16)
                if not received:
                    break
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    crew.obey(json.loads(line))
            crew.poll()
    finally:
        crew.stop_all()


def warm_up() -> None:
    """Everything that a worker imports; none of it starts a thread or touches a GPU, so that forking is safe."""
    quieten_torchft()
    import torch._dynamo  # noqa: PLC0415  an optimizer imports it when it is made

    import potluck.engine.launch  # noqa: PLC0415
    import potluck.engine.start  # noqa: PLC0415
    import potluck.meeting.supervision  # noqa: PLC0415
    import potluck.workloads.trainer  # noqa: F401, PLC0415

    _ = torch
    gc.collect()
    gc.freeze()  # pages that workers share stay shared


def tell(run: str, status: WorkerStatus, crash: Crash | None) -> None:
    """One worker's news; one that waits to be started again still belongs to the run."""
    say(
        run=run,
        worker=int(status.worker.rsplit("-", 1)[1]),
        state="running" if status.state == "waiting" else status.state,
        message="" if crash is None else f"{crash.reason}\n{crash.traceback}" if crash.traceback else crash.reason,
        restarts=max(0, status.num_starts - 1),
    )


def say(**news: Any) -> None:
    """One line of news."""
    with suppress(BrokenPipeError):  # nobody listens any more; stdin will tell
        sys.stdout.write(json.dumps(news) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
