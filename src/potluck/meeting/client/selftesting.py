"""The self-test of all joined machines: runs on all of them together, their links, and each machine's own test."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from potluck.core.words import listed
from potluck.doctor.probing.asks import StationLostError
from potluck.machine.parity import largest_difference
from potluck.meeting.client.asking import JoinedStation, visiting
from potluck.meeting.client.borrowing import borrow_run
from potluck.meeting.client.cluster import ClusterClient
from potluck.meeting.client.measuring import sweep_visited
from potluck.meeting.questions import SELF_TEST_S, MachineTested, TestMachine
from potluck.meeting.transfer.bundle import pack
from potluck.meeting.wire import RunRequest, RunTask
from potluck.selftest.agreement import HEALING_EPOCHS, judge_parameters
from potluck.selftest.catalogue import fix_for
from potluck.selftest.conducting import SelfTest
from potluck.selftest.document import Document, TestedMachine
from potluck.selftest.joined_run import JoinedOrder, WorkerResult, read_results, write_script
from potluck.selftest.rows import ALL, Row
from potluck.selftest.training import CheckFailedError

_MEGA = 1e6


@dataclass(slots=True)
class JoinedTest:
    """The self-test of the machines that have joined a host, while it goes on."""

    cluster: ClusterClient
    here: SelfTest
    """This machine's own test: its worker processes train what the run is compared with."""
    only: list[str]
    is_quick: bool
    tell: Callable[[str], None]
    tested: list[TestedMachine] = field(default_factory=list)

    def steps(self) -> list[tuple[str, str, Callable[[], Iterator[Row]]]]:
        """What is done, one after the other: the name of the check, where, and the function that yields its rows."""
        precisions = ("fp32",) if self.is_quick else ("fp32", "bf16", "fp16")
        found: list[tuple[str, str, Callable[[], Iterator[Row]]]] = [
            *(("parity", f"all machines, {one}", partial(self._parity, one)) for one in precisions),
            ("healing", "all machines", self._healing),
            ("all-reduce", "all machines", self._links),
        ]
        chosen = [step for step in found if not self.only or step[0] in self.only]
        return [*chosen, ("each machine's own test", "all machines at once", self._each)]

    def _parity(self, precision: str) -> Iterator[Row]:
        yield self._timed("parity", lambda: self._train(JoinedOrder(precision=precision, machines=self._machines())))

    def _healing(self) -> Iterator[Row]:
        machines = self._machines()
        order = JoinedOrder(precision="fp32", machines=machines, epochs=HEALING_EPOCHS, victim=machines[-1])
        yield self._timed("healing", lambda: self._train(order))

    def _timed(self, check: str, do: Callable[[], Row]) -> Row:
        began = time.monotonic()
        try:
            row = do()
        except CheckFailedError as error:
            row = Row(check=check, where="all machines", result="failed", why=str(error), fix=error.fix)
        fix = row.fix or fix_for(check) if row.result == "failed" else ""
        return msgspec.structs.replace(row, fix=fix, machine=ALL, seconds=round(time.monotonic() - began, 2))

    def _machines(self) -> list[str]:
        """Those that are here and train."""
        machines = self.cluster.status()["machines"]
        return [str(one["machine"]) for one in machines if one["state"] != "away" and one["trains"]]

    def _train(self, order: JoinedOrder) -> Row:
        """One run on all machines; its parameters against those of one process on this machine's CPU."""
        run = self._run(order)
        with borrow_run(self.cluster, run["run"]) as folder:
            found = read_results(folder)
        lost = [worker for worker, one in found.items() if not one.parameters]
        if run["state"] != "finished" or lost or not found:
            raise CheckFailedError(_why_not(run, lost), f"potluck logs {run['run']}")
        if order.victim and all(one.num_starts < 2 for one in found.values()):
            raise CheckFailedError(f"run {run['run']}: the worker on {order.victim} was not killed and started again")
        wanted = self.here.alone("cpu", order.precision, order.epochs)
        apart = {
            f"{worker} on {one.device}": largest_difference(wanted, one.parameters) for worker, one in found.items()
        }
        return judge_parameters(
            "healing" if order.victim else "parity",
            f"{len(found)} workers on {len(order.machines)} machines",
            order.precision,
            apart,
            more=_shown(order, found),
            figures={f"{worker}_starts": one.num_starts for worker, one in found.items()},
            first=f"the CPU of {self.cluster.membership.machine}",
        )

    def _run(self, order: JoinedOrder) -> dict[str, Any]:
        """Send the script, start the run, and wait for its end; returns the host's description."""
        with tempfile.TemporaryDirectory(prefix="potluck-selftest-") as place:
            script = write_script(Path(place))
            bundle = pack(Path(place), script)
        self.cluster.send_bundle(bundle)
        words = [json.dumps(order.as_data())]
        task = RunTask(bundle=bundle.hash, entry=bundle.entry, arguments=words, requirements={})
        run = self.cluster.start(RunRequest(name=None, resume=False, task=task))
        try:
            for news in self.cluster.follow(run["run"], self.tell, run.get("written")):
                run = news.run
        except KeyboardInterrupt:
            self.cluster.stop(run["run"])
            raise
        return run

    def _links(self) -> Iterator[Row]:
        with visiting(self.cluster.membership, self.tell) as visit:
            if len(visit.stations) < 2:
                yield Row(check="all-reduce", where="all machines", result="left out", why="only one machine is here")
                return
            yield self._timed("all-reduce", lambda: self._sweep(visit.stations, visit.addresses))

    def _sweep(self, stations: dict[str, JoinedStation], addresses: dict[str, str]) -> Row:
        told: list[str] = []
        swept = sweep_visited(stations, addresses, told.append)
        if swept is None:
            raise CheckFailedError("; ".join(told) or "the links were not measured", "potluck doctor --cluster")
        return Row(
            check="all-reduce",
            where=f"{len(stations)} machines, gloo",
            result="ok",
            number=f"{swept.ring.bytes_per_s / _MEGA:,.1f} MB/s, {1e3 * swept.ring.latency_s:.2f} ms a hop",
            figures={"bytes_per_s": swept.ring.bytes_per_s, "latency_s": swept.ring.latency_s}
            | {f"{pair}_bytes_per_s": link.bytes_per_s for pair, link in swept.pairs.items()},
        )

    def _each(self) -> Iterator[Row]:
        """Every machine's own test, on all of them at the same time."""
        question = TestMachine(checks=tuple(self.only), is_quick=self.is_quick)
        with visiting(self.cluster.membership, self.tell, SELF_TEST_S) as visit:
            for name, why in visit.absent.items():
                yield _not_tested(name, why)
            with ThreadPoolExecutor(max_workers=len(visit.stations)) as pool:
                waiting = {
                    name: pool.submit(station.ask, question, SELF_TEST_S) for name, station in visit.stations.items()
                }
                for name, future in waiting.items():
                    try:
                        told = future.result()
                    except StationLostError as error:
                        yield _not_tested(name, str(error))
                        continue
                    assert isinstance(told, MachineTested)
                    document = msgspec.json.decode(told.document, type=Document)
                    self.tested += document.machines
                    yield from document.rows


def _not_tested(machine: str, why: str) -> Row:
    return Row(
        check="own test",
        where="its own checks",
        machine=machine,
        result="failed",
        why=f"{machine} gave no result: {why}",
        fix=f"on {machine}: potluck selftest --solo",
    )


def _shown(order: JoinedOrder, found: dict[str, WorkerResult]) -> str:
    if order.victim:
        return f"{listed([worker for worker, one in found.items() if one.num_starts > 1])} was killed and healed"
    return "shares " + " + ".join(str(one.shares[-2]) for one in found.values() if len(one.shares) > 1)


def _why_not(run: dict[str, Any], lost: list[str]) -> str:
    messages = [
        f"{machine}: {worker['message'].strip().splitlines()[-1]}"
        for machine, workers in run["workers"].items()
        for worker in workers
        if worker.get("message")
    ]
    missing = f"no parameters came home from {listed(lost)}" if lost else f"the run ended as {run['state']}"
    return "; ".join([f"run {run['run']}: {missing}", *messages])
