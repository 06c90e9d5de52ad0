"""Machines that have joined a host, many of them in this process: all that a host sees of an agent, without workers.

Each has a real identity, a real gate with a link to the host, and the two connections of an agent: one that waits for
orders, and one that reports and sends the events of a run home. Gates of these machines do not dial each other; the
reports say that they have.
"""

import asyncio
import json
import socket
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from potluck.core.errors import MeetingError
from potluck.events.types import Record, StepCommitted
from potluck.gates.gate import Gate
from potluck.gates.identity import load_or_make
from potluck.gates.messages import Settings
from potluck.machine.facts import Facts
from potluck.meeting.access.invitation import Invitation
from potluck.meeting.client.client import HostClient, HostSilentError
from potluck.meeting.client.joining import join
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.transfer.shipping import Shipper
from potluck.meeting.wire import POLL_S, LinkReport, PollRequest, Reach, Report

HERE = "127.0.0.1"
SHIP_EVERY_S = 0.5


class JoinedMachine:
    """One machine: its gate, and two connections in threads of their own."""

    def __init__(self, invitation: Invitation, name: str, folder: Path, seen: Facts, run: str) -> None:
        home = Home(folder)
        self.name = name
        self.identity = load_or_make(home.identity_dir)
        self.listener = socket.socket()
        self.listener.bind((HERE, 0))  # it listens once this machine's gate is there; until then it refuses
        self.port: int = self.listener.getsockname()[1]
        self._membership = self._enter(invitation, home, seen)
        self.members: list[str] = []
        self._known: dict[str, dict[str, Any]] = {}
        with HostClient.of(self._membership) as client:
            client.ask("POST", "/report", self._report())
        self._run = run
        self._folder = folder / "runs" / run
        self.file = self._folder / "events" / f"{name}-0.jsonl"
        self.file.parent.mkdir(parents=True)
        self.heard_at: dict[str, float] = {}
        """When this machine heard of each other one (time.monotonic)."""
        self.gate_settings: Settings | None = None
        self.num_polls = self.num_events = 0
        self.troubles: list[str] = []
        self._is_over = threading.Event()

    def _enter(self, invitation: Invitation, home: Home, seen: Facts) -> HostMembership:
        """As a person does it: if the host does not answer, once more."""
        try:
            return join(invitation, self.name, home, seen, identity=self.identity, gate_port=self.port)
        except HostSilentError:
            return join(invitation, self.name, home, seen, identity=self.identity, gate_port=self.port)

    def start(self, events_per_s: float) -> list[threading.Thread]:
        """Live as an agent does, until told to stop."""
        threads = [
            threading.Thread(target=self._listen),
            threading.Thread(target=self._deliver, args=(events_per_s,)),
        ]
        for thread in threads:
            thread.start()
        return threads

    def stop(self) -> None:
        """Send everything home, and end."""
        self._is_over.set()

    def _listen(self) -> None:
        known = ""
        with HostClient.of(self._membership, timeout_s=POLL_S + 5, with_small_packets=True) as client:
            while not self._is_over.is_set():
                try:
                    orders = client.ask("POST", "/poll", PollRequest(known=known))
                except MeetingError as error:
                    self.troubles.append(error.args[0])
                    continue
                self.num_polls += 1
                if orders["digest"] != known:
                    known = orders["digest"]
                    self._take(orders["gate"], orders.get("member_changes"))

    def _take(self, gate: dict[str, Any], changes: dict[str, Any] | None) -> None:
        now = time.monotonic()
        if changes is None:
            self._known = {}
        for member in gate["members"] if changes is None else changes["changed"]:
            self._known[member["machine"]] = member
            self.heard_at.setdefault(member["machine"], now)
        for name in [] if changes is None else changes["gone"]:
            self._known.pop(name, None)
        self.members = list(self._known)
        wanted = [self._known[name] for name in (self.name, gate["host"]) if name in self._known]
        told = {"machine": self.name, "host": gate["host"], "block": gate["block"], "members": wanted}
        self.gate_settings = msgspec.convert({"type": "Settings", **told}, Settings)

    def _deliver(self, events_per_s: float) -> None:
        with HostClient.of(self._membership) as client:

            def send(name: str, offset: int, data: bytes) -> int:
                path = f"/runs/{self._run}/files?file={name}&offset={offset}"
                return int(json.loads(client.send("POST", path, data))["size"])

            shipper, told, due = Shipper(self._folder, send), self.members, 0.0
            while not self._is_over.wait(SHIP_EVERY_S):
                try:
                    due += events_per_s * SHIP_EVERY_S
                    self._write(int(due))
                    due -= int(due)
                    shipper.ship()
                    if (members := self.members) is not told:
                        client.ask("POST", "/report", self._report())
                        told = members
                except MeetingError as error:
                    self.troubles.append(error.args[0])
            try:
                while shipper.ship():
                    pass
            except MeetingError as error:
                self.troubles.append(error.args[0])

    def _report(self) -> Report:
        links = [_direct_link(other) for other in self.members]
        return Report(devices=["cpu"], reach=Reach(addresses=[HERE], port=self.port), links=links)

    def _write(self, number: int) -> None:
        with self.file.open("ab") as file:
            for _ in range(number):
                event = StepCommitted(step=self.num_events, epoch=0, samples=64, loss=1.0, seconds=0.1, own_samples=1)
                record = Record(sequence=self.num_events, time=time.time(), event=event)
                file.write(msgspec.json.encode(record) + b"\n")
                self.num_events += 1


@cache  # real machines make their reports each on a processor of its own
def _direct_link(machine: str) -> LinkReport:
    return LinkReport(machine=machine, way="direct", round_trip_s=0.001)


class Gates:
    """The gates of many machines in one thread; each knows itself and the host."""

    def __init__(self) -> None:
        self._machines: list[JoinedMachine] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))
        self._thread.start()

    def add(self, machine: JoinedMachine) -> None:
        """Another machine's gate."""
        self._machines.append(machine)

    def close(self) -> None:
        """Cut all links."""
        self._is_over.set()
        self._thread.join()

    async def _live(self) -> None:
        # A dial that a busy computer does not answer in time is tried again, and is no news.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        gates: dict[str, Gate] = {}
        tasks = []
        while not self._is_over.is_set():
            for machine in list(self._machines):
                if machine.gate_settings is None:
                    continue
                if machine.name not in gates:
                    machine.listener.listen()
                    gates[machine.name] = Gate(machine.identity, [machine.listener], lambda: None)
                    tasks.append(asyncio.ensure_future(gates[machine.name].listen()))
                gates[machine.name].update(machine.gate_settings)
            await asyncio.sleep(1.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
