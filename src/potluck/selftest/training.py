"""Gives the self-test's worker processes a training to do, alone or together, and gathers their results."""

import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from potluck.engine.group.lighthouse import start_lighthouse
from potluck.selftest.crews import Crew
from potluck.selftest.orders import AnyAnswer, AnyOrder, Failed, Train, Trained
from potluck.selftest.processes import WorkerPool, gather


class CheckFailedError(Exception):
    """A check could not be done to its end; `fix` is what to type next, if a worker said so."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


@dataclass(slots=True)
class SmallRuns:
    """The worker processes of a self-test, the folder for their runs, and results that several checks need."""

    pool: WorkerPool
    folder: Path
    machine: str
    num_cores: int
    _alone: dict[tuple[str, str, int], Trained] = field(default_factory=dict)
    _num_runs: int = 0

    def ask(self, order: AnyOrder) -> AnyAnswer:
        """Give one process an order, and wait for its answer."""
        return self.ask_all([order])[0]

    def ask_all(self, orders: Sequence[AnyOrder]) -> list[AnyAnswer]:
        """Give each process one of the orders at the same time, and wait for all answers."""
        processes = self.pool.take(len(orders))
        for process, order in zip(processes, orders, strict=True):
            process.order(order)
        return gather(processes)

    def alone(self, device: str, precision: str, epochs: int = 2) -> Trained:
        """What one process gives on this device; trained once."""
        key = device, precision, epochs
        if key not in self._alone:
            order = Train(
                run=self.new_run(),
                device=device,
                precision=precision,
                machine=self.machine,
                epochs=epochs,
                variables=self.variables(0, 1),
            )
            (self._alone[key],) = trained([self.ask(order)], [device])
        return self._alone[key]

    @contextmanager
    def group(self, num_workers: int) -> Iterator[list[dict[str, str]]]:
        """Variables for each of the workers of one run, which meet at a lighthouse of their own."""
        server = start_lighthouse("127.0.0.1:0")
        try:
            port = server.address().rsplit(":", 1)[1]
            meeting = {
                "POTLUCK_LIGHTHOUSE": f"http://127.0.0.1:{port}",
                "POTLUCK_SECRET": secrets.token_hex(16),
                "POTLUCK_WORKERS": str(num_workers),
            }
            yield [
                {**self.variables(number, num_workers), **meeting, "POTLUCK_WORKER": str(number)}
                for number in range(num_workers)
            ]
        finally:
            server.shutdown()

    def variables(self, number: int, num_workers: int) -> dict[str, str]:
        """Where worker `number` keeps its files, and its part of the machine's cores."""
        place = self.folder / f"worker{number}"
        place.mkdir(exist_ok=True)
        return {
            "POTLUCK_NAME": self.machine,
            "POTLUCK_HOME": str(place / "home"),
            "POTLUCK_RUNS_DIR": str(place / "experiments"),
            "POTLUCK_THREADS": str(max(1, self.num_cores // num_workers)),
        }

    def new_run(self) -> str:
        """A name that no run of this self-test had."""
        self._num_runs += 1
        return f"run{self._num_runs}"

    def event_files(self, run: str, number: int) -> list[Path]:
        """The events of one worker of a run."""
        return sorted((self.folder / f"worker{number}" / "experiments" / run / "events").glob("*.jsonl"))


def crew_orders(
    runs: SmallRuns,
    crew: Crew,
    variables: Sequence[dict[str, str]],
    precision: str,
    *,
    shares: Sequence[int] | None = None,
    policy: str = "static",
    epochs: int = 2,
    pause_s: float = 0.0,
    wait_s: float = 0.0,
) -> list[Train]:
    """An order for each worker of a crew."""
    run = runs.new_run()
    by_hand = [{} if shares is None else {"POTLUCK_SHARE": str(shares[number])} for number in range(len(crew.devices))]
    return [
        Train(
            run=run,
            device=device,
            precision=precision,
            backend=crew.backend,
            policy=policy,
            machine=runs.machine,
            epochs=epochs,
            pause_s=pause_s,
            wait_s=wait_s,
            variables={**variables[number], **by_hand[number]},
        )
        for number, device in enumerate(crew.devices)
    ]


def trained(answers: Sequence[AnyAnswer], devices: Sequence[str]) -> list[Trained]:
    """The results of all workers; CheckFailedError names the first worker that failed."""
    for number, answer in enumerate(answers):
        if isinstance(answer, Failed):
            raise CheckFailedError(f"worker {number} on {devices[number]}: {answer.error}", answer.fix)
    return [answer for answer in answers if isinstance(answer, Trained)]


def free_port() -> int:
    """A port of this machine that is free at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
