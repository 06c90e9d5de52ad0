"""What one lighthouse holds: the time of a quorum, bytes and processor time, with 10, 100 and 1,000 members.

    python -m benchmarks.lighthouse --members 1000 --json
    python -m benchmarks.lighthouse --members 1000 --heartbeat-timeout 30 --json

The lighthouse is the one that a host starts, in a process of its own. Members are threads in a few processes; each has
a connection of its own, sends heartbeats as often as a worker does, and asks for quorums by the same requests as a
worker's manager. A quorum's time is from the last member's request to the last answer; in a run it passes while workers
compute. Bytes are those on the loopback interface, both ways, headers included. Where the members cannot send their
heartbeats on time on this computer (`heartbeats_per_s`), the processor time of one heartbeat is what to multiply; and a
member whose heartbeats came late is left out of a quorum and waits for the next (`unanswered`). With a longer
`--heartbeat-timeout` members send heartbeats less often while they wait, and what is left is the quorum's own work.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support.free_port import free_port

HEARTBEAT_S = 0.15
ALIVE = 0.4  # of the heartbeat timeout
PROCESSES = 4
QUORUMS = 5
TIMEOUT = timedelta(seconds=15)
SIZES = (10, 100)
LIGHTHOUSE = str(Path(__file__).parent / "support/lighthouse.py")


def main() -> None:
    """Measure each size, print, and with --json end with one line for scripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1000, help="the largest size; 10 and 100 are measured too")
    parser.add_argument("--seconds", type=float, default=5.0, help="of heartbeats alone")
    parser.add_argument("--heartbeat-timeout", type=float, default=1.0, help="seconds until a silent member is lost")
    parser.add_argument("--json", action="store_true", help="end with one JSON line")
    options = parser.parse_args()
    os.environ["RUST_LOG"] = "error"  # else every member's client prints a line
    rows = []
    for size in [*(size for size in SIZES if size < options.members), options.members]:
        rows.append(measure(size, options.seconds, options.heartbeat_timeout))
        print(", ".join(f"{name} {value:g}" for name, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps({"benchmark": "lighthouse", **rows[-1], "rows": rows}))


def measure(members: int, seconds: float, heartbeat_timeout_s: float) -> dict[str, float]:
    """One lighthouse with so many members."""
    bind = f"127.0.0.1:{free_port()}"
    lighthouse = subprocess.Popen(
        [sys.executable, LIGHTHOUSE, "--bind", bind, "--heartbeat-timeout", str(heartbeat_timeout_s)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    context = multiprocessing.get_context("spawn")
    counts = [len(range(first, members, PROCESSES)) for first in range(PROCESSES)]
    pipes, crews = [], []
    try:
        for number, count in enumerate(counts):
            here, there = context.Pipe()
            crews.append(context.Process(target=crew, args=(there, bind, number, count, ALIVE * heartbeat_timeout_s)))
            crews[-1].start()
            pipes.append(here)
        for pipe in pipes:
            pipe.recv()
        process = psutil.Process(lighthouse.pid)
        before = seen(process)
        ask(pipes, ("beat", seconds))
        beats = sum(pipe.recv() for pipe in pipes)
        after = seen(process)
        quorums = [quorum(pipes, process) for _ in range(QUORUMS)]
    finally:
        for pipe in pipes:
            pipe.send(None)
        for one in crews:
            one.join(30)
        lighthouse.kill()
        lighthouse.wait()
    took_s = after["at"] - before["at"]
    return {
        "members": members,
        "quorum_s": round(statistics.median(one["seconds"] for one in quorums), 4),
        "quorum_cpu_s": round(statistics.median(one["cpu_s"] for one in quorums), 4),
        "quorum_bytes": round(statistics.median(one["bytes"] for one in quorums)),
        "unanswered": statistics.median(one["unanswered"] for one in quorums),
        "heartbeats_per_s": round(beats / took_s, 1),
        "heartbeats_wanted_per_s": round(members / HEARTBEAT_S, 1),
        "cpu_share": round((after["cpu_s"] - before["cpu_s"]) / took_s, 4),
        "cpu_us_per_heartbeat": round(1e6 * (after["cpu_s"] - before["cpu_s"]) / max(1, beats), 1),
        "bytes_per_heartbeat": round((after["bytes"] - before["bytes"]) / max(1, beats)),
        "memory_mb": round(process_memory(after), 1),
    }


def process_memory(after: dict[str, float]) -> float:
    """Resident memory of the lighthouse."""
    return after["memory"] / 1e6


def quorum(pipes: list[Any], process: psutil.Process) -> dict[str, float]:
    """All members ask at once; the time until the last has its answer."""
    before = seen(process)
    ask(pipes, ("quorum", 0.0))
    spans = [pipe.recv() for pipe in pipes]
    after = seen(process)
    last_asked, last_answered = max(span[0] for span in spans), max(span[1] for span in spans)
    return {
        "seconds": last_answered - last_asked,
        "cpu_s": after["cpu_s"] - before["cpu_s"],
        "bytes": after["bytes"] - before["bytes"],
        "unanswered": float(sum(span[2] for span in spans)),
    }


def ask(pipes: list[Any], order: tuple[str, float]) -> None:
    """Send an order to all processes of members."""
    for pipe in pipes:
        pipe.send(order)


def seen(process: psutil.Process) -> dict[str, float]:
    """The lighthouse's processor time and memory, and the bytes on loopback, so far."""
    times, lo = process.cpu_times(), psutil.net_io_counters(pernic=True)["lo"]
    return {
        "at": time.monotonic(),
        "cpu_s": times.user + times.system,
        "bytes": float(lo.bytes_sent),
        "memory": float(process.memory_info().rss),
    }


def crew(pipe: Any, bind: str, number: int, count: int, alive_s: float) -> None:
    """One process of members: a thread each, which does what the orders on the pipe say."""
    from torchft.coordination import LighthouseClient  # noqa: PLC0415  spawned processes only

    names = [f"m{number}-{index}" for index in range(count)]
    clients = [LighthouseClient(f"http://{bind}", TIMEOUT) for _ in names]
    members = list(zip(names, clients, strict=True))
    for name, client in members:
        client.heartbeat(name, TIMEOUT)
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        what, seconds = order
        done: list[Any] = [None] * count
        ended = threading.Event()
        heart = threading.Thread(target=keep_alive, args=(members, alive_s, ended))
        if what == "quorum":
            heart.start()
        work = [
            threading.Thread(target=beat if what == "beat" else ask_quorum, args=(done, index, client, name, seconds))
            for index, (name, client) in enumerate(members)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        ended.set()
        if what == "quorum":
            heart.join()
        answered = [one for one in done if one is not None]
        if what == "beat":
            pipe.send(sum(answered))
        else:
            times = [max((one[side] for one in answered), default=0.0) for side in (0, 1)]
            pipe.send((*times, count - len(answered)))


def keep_alive(members: list[tuple[str, Any]], alive_s: float, ended: threading.Event) -> None:
    """Heartbeats of all members while they wait for a quorum, often enough that nobody is taken for lost."""
    while not ended.is_set():
        began = time.monotonic()
        client = members[0][1]
        for name, _ in members:
            client.heartbeat(name, TIMEOUT)
        ended.wait(max(0.0, alive_s - (time.monotonic() - began)))


def beat(done: list[Any], index: int, client: Any, name: str, seconds: float) -> None:
    """Send heartbeats for a while, as often as a worker's manager."""
    until, sent = time.monotonic() + seconds, 0
    while (now := time.monotonic()) < until:
        client.heartbeat(name, TIMEOUT)
        sent += 1
        time.sleep(max(0.0, HEARTBEAT_S - (time.monotonic() - now)))
    done[index] = sent


def ask_quorum(done: list[Any], index: int, client: Any, name: str, _: float) -> None:
    """Ask for a quorum; the lighthouse answers once all members with heartbeats have asked."""
    asked = time.monotonic()
    with contextlib.suppress(TimeoutError):  # counted as unanswered
        client.quorum(name, TIMEOUT, address=name, store_address=name, step=1, world_size=1)
        done[index] = (asked, time.monotonic())


if __name__ == "__main__":
    main()
