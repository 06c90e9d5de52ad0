"""The fork server's process: it imports torch once, so that workers, which are its forks, start at once.

    python -m potluck.meeting.workers.fork_server

Messages come on stdin and go out on stdout, see messages.py. When stdin ends, the agent is gone: the workers stop
after their step.
"""

import gc
import os
import select
import sys
from contextlib import suppress

import msgspec

from potluck.core.environment import quieten_torchft
from potluck.meeting.workers.messages import (
    STEP_S,
    EndWithin,
    ForkServerReady,
    FromForkServer,
    StartWorkers,
    StopWorkers,
    ToForkServer,
)
from potluck.meeting.workers.processes import WorkerProcesses

_POLL_S = 0.2
_END_S = 2.0


class ForkServer:
    """The workers of this machine, run by run."""

    def __init__(self) -> None:
        self._runs: dict[str, WorkerProcesses] = {}
        self._step_s = STEP_S

    def take(self, message: ToForkServer) -> None:
        """Do what the agent asks; new workers start with the next poll."""
        match message:
            case StartWorkers(run=run):
                if run in self._runs:
                    self._runs[run].stop(after_step=False, end_s=0)
                self._runs[run] = WorkerProcesses(message)
            case StopWorkers(run=run):
                if run in self._runs:
                    self._runs[run].ask_to_stop()
            case EndWithin(step_s=step_s):
                self._step_s = step_s

    def poll(self) -> None:
        """Look at every worker once, and send the changes to the agent."""
        for processes in self._runs.values():
            for news in processes.poll():
                tell(news)

    def stop_all(self) -> None:
        for processes in self._runs.values():
            processes.ask_to_stop()
        for processes in self._runs.values():
            processes.stop(step_s=self._step_s, end_s=_END_S)


def main() -> None:
    """Warm up, then take messages until stdin ends."""
    warm_up()
    tell(ForkServerReady())
    server, buffer = ForkServer(), b""
    try:
        while True:
            if select.select([0], [], [], _POLL_S)[0]:
                received = os.read(0, 1 << 16)
                if not received:
                    break
                *lines, buffer = (buffer + received).split(b"\n")
                for line in lines:
                    server.take(msgspec.json.decode(line, type=ToForkServer))
            server.poll()
    finally:
        server.stop_all()


def warm_up() -> None:
    """Import everything that a worker needs; none of it starts a thread or touches a GPU, so that forking is safe."""
    quieten_torchft()
    import torch._dynamo  # noqa: PLC0415  an optimizer imports it when it is made

    import potluck.engine.group.launch  # noqa: PLC0415
    import potluck.engine.group.switching  # noqa: PLC0415
    import potluck.engine.start  # noqa: PLC0415
    import potluck.meeting.workers.supervision  # noqa: PLC0415
    import potluck.workloads.trainer  # noqa: F401, PLC0415

    _ = torch
    gc.collect()
    gc.freeze()  # the collector must not write to memory pages that workers share


def tell(message: FromForkServer) -> None:
    """Send a message to the agent, as one line of JSON."""
    with suppress(BrokenPipeError):  # the agent is gone; the end of stdin ends this process
        sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
