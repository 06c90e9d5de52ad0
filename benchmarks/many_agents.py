"""How many joined machines one host holds: agents that poll, report and send events home, and every byte is counted.

    python -m benchmarks.many_agents --agents 500 --seconds 30
    python -m benchmarks.many_agents --agents 100 --events 10

The host is the real command, on one core. Of the machines only the training is left out: see
benchmarks/support/joined_machines.py. With --events each machine writes so many events a second in a run. In the end
one more machine joins, and the time is taken until all others have heard of it. A host holds its machines if none of
them went away, no question stayed without an answer, and all files are the same bytes on both sides.
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
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks.support.free_port import free_port
from benchmarks.support.joined_machines import HERE, Gates, JoinedMachine
from potluck.gates.file_limit import raise_file_limit
from potluck.machine.snapshot import take_facts
from potluck.meeting.access.invitation import read_invitation
from potluck.meeting.host.runs import RunRecord
from potluck.meeting.wire import RunTask

RUN = "one"
READY_S = 120.0
NUM_JOINING = 8  # machines that join at the same moment
AT_ONCE = 50  # machines that begin to ask at the same moment
HEARD_S = 60.0


def main() -> None:
    """Start the host, let the machines live, compare every file; exit 1 if the host does not hold them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--events", type=float, default=0.0, help="events a second of every machine")
    parser.add_argument("--core", type=int, default=0, help="the processor that the host runs on; -1: any")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    raise_file_limit()
    if options.core >= 0 and (others := os.sched_getaffinity(0) - {options.core}):
        os.sched_setaffinity(0, others)
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24}{value}")
    sys.exit(not result["holds"])


def measure(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """One host, that many machines, for that long."""
    make_run(folder / "host", folder / "experiments" / RUN)
    host = start_host(folder / "host", options.core)
    machines: list[JoinedMachine] = []
    threads: list[threading.Thread] = []
    gates: Gates | None = None
    try:
        assert host.stdout is not None
        line = next(line.decode().split()[2] for line in host.stdout if b"potluck join p1-" in line)
        threading.Thread(target=host.stdout.read, daemon=True).start()
        invitation, seen = read_invitation(line), take_facts(with_torch=False)
        began = time.monotonic()
        gates = Gates()
        names = [f"m{number}" for number in range(options.agents)]
        with ThreadPoolExecutor(NUM_JOINING) as pool:
            machines += pool.map(lambda name: JoinedMachine(invitation, name, folder / name, seen, RUN), names)
        joined_s = time.monotonic() - began
        print(f"{len(machines)} machines have joined after {joined_s:.1f} s; host {host.pid}", flush=True)
        for first in range(0, len(machines), AT_ONCE):
            group = machines[first : first + AT_ONCE]
            for machine in group:
                threads += machine.start(options.events)
                gates.add(machine)
            wait_for(group, 1, READY_S)
            print(f"{first + len(group)} of them ask for orders after {time.monotonic() - began:.1f} s", flush=True)
        wait_for(machines, len(machines), READY_S)
        ready_s = time.monotonic() - began - joined_s
        print(f"{len(machines)} machines know each other after {ready_s:.1f} s", flush=True)
        for machine in machines:
            machine.troubles.clear()  # until here they all came at once
        before, began = cpu_s(host.pid), time.monotonic()
        polls = sum(machine.num_polls for machine in machines)
        time.sleep(options.seconds)
        took_s, after = time.monotonic() - began, cpu_s(host.pid)
        polls = sum(machine.num_polls for machine in machines) - polls
        memory = psutil.Process(host.pid).memory_info().rss
        troubles = [trouble for machine in machines for trouble in machine.troubles]
        came_at = time.monotonic()
        late = JoinedMachine(invitation, "late", folder / "late", seen, RUN)
        threads += late.start(0.0)
        gates.add(late)
        heard_s = wait_for_name(machines, late.name, came_at)
        machines.append(late)
    finally:
        for machine in machines:
            machine.stop()
        for thread in threads:
            thread.join()
        if gates is not None:
            gates.close()
        host.send_signal(signal.SIGINT)
        host.wait(30)
    differ = sum(not is_same(machine.file, folder / "experiments" / RUN / "events") for machine in machines)
    return {
        "agents": options.agents,
        "events_per_s": options.events,
        "join_s": round(joined_s, 1),
        "ready_s": round(ready_s, 1),
        "seconds": options.seconds,
        "polls": polls,
        "events": sum(machine.num_events for machine in machines),
        "files_that_differ": differ,
        "unanswered": len(troubles),
        "host_cpu_share": round((after[0] - before[0]) / took_s, 3),
        "gate_cpu_share": round((after[1] - before[1]) / took_s, 3),
        "host_memory_mb": round(memory / 1e6),
        "new_machine_heard_s": round(heard_s, 2),
        "holds": not differ and not troubles and heard_s < HEARD_S,
    }


def start_host(home: Path, core: int) -> "subprocess.Popen[bytes]":
    """The real command, on one core."""
    command = [] if core < 0 else ["taskset", "--cpu-list", str(core)]
    command += [sys.executable, "-m", "potluck", "host", "--not-here", "--no-mdns", "--address", HERE]
    return subprocess.Popen(
        [*command, "--port", str(free_port()), "--name", "host"],
        env={**os.environ, "POTLUCK_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
    )


def make_run(home: Path, folder: Path) -> None:
    """A run that the host finds when it starts, as after a restart."""
    folder.mkdir(parents=True)
    record = RunRecord(
        name=RUN,
        id="1",
        task=RunTask(settings={}),
        started_by="benchmark",
        started_at=time.time(),
        folder=folder,
        secret="",
        lighthouse_port=1,
        state="finished",
    )
    (home / "host" / "runs").mkdir(parents=True)
    (home / "host" / "runs" / f"{RUN}.json").write_text(record.model_dump_json())


def wait_for(machines: Sequence[JoinedMachine], number: int, at_most_s: float) -> float:
    """Seconds until every machine has heard of so many."""
    began = time.monotonic()
    while any(len(machine.members) < number for machine in machines):
        if time.monotonic() - began > at_most_s:
            knows = sorted(len(machine.members) for machine in machines)
            met = Counter(trouble for machine in machines for trouble in machine.troubles)
            complaint = f"after {at_most_s:.0f} s machines know {knows} of {number}; what they met: {met}"
            print(complaint, flush=True)  # now: ending so many machines takes a while
            sys.exit(1)
        time.sleep(0.1)
    return time.monotonic() - began


def wait_for_name(machines: Sequence[JoinedMachine], name: str, came_at: float) -> float:
    """Seconds from then on until every machine has heard of that one, at most HEARD_S."""
    while time.monotonic() - came_at < HEARD_S and any(name not in machine.heard_at for machine in machines):
        time.sleep(0.1)
    return max(machine.heard_at.get(name, came_at + HEARD_S) for machine in machines) - came_at


def cpu_s(pid: int) -> tuple[float, float]:
    """Processor time so far of the host, and of its gate."""
    process = psutil.Process(pid)
    times = [(one.cpu_times().user + one.cpu_times().system) for one in (process, *process.children(recursive=True))]
    return times[0], sum(times[1:])


def is_same(file: Path, arrived: Path) -> bool:
    """Whether all of a machine's file is at the host."""
    copy = arrived / file.name
    return (digest(copy) if copy.is_file() else None) == (digest(file) if file.is_file() else None)


def digest(path: Path) -> str:
    """The content, in one word."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
