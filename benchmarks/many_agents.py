"""How much work many machines make for one host: agents that poll and ship events, and every byte is counted.

    python -m benchmarks.many_agents --agents 200 --seconds 30

The host is the real command in a process of its own; each agent has the real client, the real shipper and a real file
that grows by ten events a second. Only the training is left out.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import psutil

from potluck.events.types import Record, StepCommitted
from potluck.meeting.client import HostClient
from potluck.meeting.home import Home, Membership
from potluck.meeting.invitation import read_invitation
from potluck.meeting.joining import join
from potluck.meeting.runs import RunRecord
from potluck.meeting.shipping import Shipper
from potluck.meeting.wire import PollRequest, Report, Task, WorkerReport

HERE = "127.0.0.1"
EVENTS_PER_S = 10
SHIP_EVERY_S = 0.5


class Agent:
    """One machine: two connections, as the real agent has, in threads of this process."""

    def __init__(self, membership: Membership, folder: Path, run: str) -> None:
        self.membership = membership
        self.machine = membership.machine
        self.folder = folder / "runs" / run
        self.file = self.folder / "events" / f"{self.machine}-0.jsonl"
        self.file.parent.mkdir(parents=True)
        self.run = run
        self.num_polls = self.num_events = 0

    def live(self, until: float, start: threading.Barrier) -> None:
        """Write, ship, poll, until the time is over and everything has arrived."""
        polling = threading.Thread(target=self._poll, args=(until,))
        start.wait()
        polling.start()
        with HostClient.of(self.membership) as client:

            def send(name: str, offset: int, data: bytes) -> int:
                path = f"/runs/{self.run}/files?file={name}&offset={offset}"
                return int(json.loads(client.send("POST", path, data))["size"])

            shipper = Shipper(self.folder, send)
            client.ask("POST", "/report", Report(devices=["cpu"]))
            next_at = time.monotonic()
            while time.monotonic() < until:
                self._write(round(EVENTS_PER_S * SHIP_EVERY_S))
                shipper.ship()
                next_at += SHIP_EVERY_S
                time.sleep(max(0.0, next_at - time.monotonic()))
            while shipper.ship():
                pass
            client.ask(
                "POST",
                "/report",
                Report(devices=["cpu"], workers=[WorkerReport(run=self.run, worker=0, state="stopped")]),
            )
        polling.join()

    def _write(self, number: int) -> None:
        with self.file.open("ab") as file:
            for _ in range(number):
                event = StepCommitted(step=self.num_events, epoch=0, samples=64, loss=1.0, seconds=0.1, own_samples=1)
                record = Record(sequence=self.num_events, time=time.time(), event=event)
                file.write(msgspec.json.encode(record) + b"\n")
                self.num_events += 1

    def _poll(self, until: float) -> None:
        known = ""
        with HostClient.of(self.membership, timeout_s=30) as client:
            while time.monotonic() < until:
                known = client.ask("POST", "/poll", PollRequest(known=known))["digest"]
                self.num_polls += 1


def main() -> None:
    """Start the host, let the agents live, compare every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.agents, options.seconds)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:22}{value}")
    sys.exit(result["files_that_differ"] != 0)


def measure(folder: Path, num_agents: int, seconds: float) -> dict[str, object]:
    """One host, that many agents, for that long."""
    home, port = folder / "host", 29871
    environment = {**os.environ, "POTLUCK_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    make_run(home, folder / "experiments" / "one")
    command = [sys.executable, "-m", "potluck", "host", "--not-here", "--no-mdns", "--address", HERE]
    host = subprocess.Popen([*command, "--port", str(port), "--name", "host"], env=environment, stdout=subprocess.PIPE)
    try:
        assert host.stdout is not None
        line = next(line.decode().split()[2] for line in host.stdout if b"potluck join p1-" in line)
        threading.Thread(target=host.stdout.read, daemon=True).start()
        agents = []
        for number in range(num_agents):
            place = folder / f"m{number}"
            agents.append(Agent(join(read_invitation(line), f"m{number}", Home(place)), place, "one"))
        time.sleep(3.0)  # torch is imported by now
        start, until = threading.Barrier(num_agents + 1), time.monotonic() + seconds
        threads = [threading.Thread(target=agent.live, args=(until, start)) for agent in agents]
        for thread in threads:
            thread.start()
        process = psutil.Process(host.pid)
        before, began = process.cpu_times(), time.monotonic()
        start.wait()
        for thread in threads:
            thread.join()
        after, took_s = process.cpu_times(), time.monotonic() - began
        memory = process.memory_info().rss
    finally:
        host.send_signal(signal.SIGINT)
        host.wait(20)
    differ = 0
    for agent in agents:
        copy = folder / "experiments" / "one" / "events" / agent.file.name
        differ += not copy.is_file() or digest(copy) != digest(agent.file)
    cpu_s = after.user + after.system - before.user - before.system
    return {
        "agents": num_agents,
        "seconds": round(took_s, 1),
        "polls": sum(agent.num_polls for agent in agents),
        "events": sum(agent.num_events for agent in agents),
        "files_that_differ": differ,
        "host_cpu_share": round(cpu_s / took_s, 3),
        "host_memory_mb": round(memory / 1e6),
    }


def make_run(home: Path, folder: Path) -> None:
    """A run that the host finds when it starts, as after a restart."""
    folder.mkdir(parents=True)
    record = RunRecord(
        name="one",
        id="1",
        task=Task(settings={}),
        started_by="benchmark",
        started_at=time.time(),
        folder=folder,
        secret="",
        lighthouse_port=1,
        state="finished",
    )
    (home / "host" / "runs").mkdir(parents=True)
    (home / "host" / "runs" / "one.json").write_text(record.model_dump_json())


def digest(path: Path) -> str:
    """The content, in one word."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
