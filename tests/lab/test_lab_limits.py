"""The limits are real: computing, links and memory, measured."""

import json
import statistics
import sys
import time
from bisect import bisect
from collections.abc import Sequence

import pytest

from lab import Lab, Machine, parse_cluster

# Measured rates need the computer for themselves.
pytestmark = [pytest.mark.needs_lab, pytest.mark.real_world]

SPIN = """
import time
count = 0
while True:
    for _ in range(20_000):
        count += 1
    print(time.monotonic(), count)
"""
TURN_S = 0.12
SETTLE_S = 0.03
NUM_TURNS = 16
WHOLE_CORES = 2.0

GREEDY = """
import time
kept = []
for _ in range(400):
    kept.append(b"x" * 2**20)
print("got it all")
"""


def speed(marks: list[tuple[float, int]], began_s: float, ended_s: float) -> float:
    """Loops a second between two moments, by (moment, loops so far) in the order of time."""
    first, last = (marks[bisect(marks, (moment, 0)) - 1][1] for moment in (began_s, ended_s))
    return (last - first) / (ended_s - began_s)


def fraction_of_a_core(machine: Machine, cores: float, *, beside: Machine) -> float:
    """How fast a loop runs at `cores`, against the same loop on a whole core, in short turns.

    A loop on the other machine keeps the other core busy throughout: whether a neighbour computes changes a core's
    speed by a third here, and must not change between the turns.
    """
    beside.slow(1.0)
    neighbour = beside.start([sys.executable, "-c", "while True: pass"])
    loop = machine.start([sys.executable, "-c", SPIN])
    loop.expect(" ", 10)
    moments = []
    for _ in range(NUM_TURNS):
        for limit in (WHOLE_CORES, cores):
            machine.slow(limit)
            time.sleep(SETTLE_S)  # until what is left of the old quota is used up
            began_s = time.monotonic()
            time.sleep(TURN_S)
            moments.append((began_s, time.monotonic()))
    time.sleep(0.1)
    loop.kill()
    neighbour.kill()
    loop.wait(10)
    whole_lines = loop.output.split("\n")[:-1]
    marks = [(float(moment), int(count)) for moment, count in (line.split() for line in whole_lines)]
    speeds = [speed(marks, *moment) for moment in moments]
    return statistics.median(limited / whole for whole, limited in zip(speeds[::2], speeds[1::2], strict=True))


def fractions_of_a_core(machine: Machine, cores: float, *, beside: Machine) -> list[float]:
    """Up to three measurements, until one is right: a busy box takes time from the whole core and none from a part."""
    seen: list[float] = []
    while len(seen) < 3 and not (seen and seen[-1] == pytest.approx(cores, rel=0.1)):
        seen.append(fraction_of_a_core(machine, cores, beside=beside))
    return seen


@pytest.mark.timeout(90)
def test_a_fixed_loop_runs_at_the_declared_fraction_of_a_core() -> None:
    with Lab("pair") as lab:
        oak = fractions_of_a_core(lab["oak"], 1.0, beside=lab["elm"])
        elm = fractions_of_a_core(lab["elm"], 0.3, beside=lab["oak"])
    print(f"of a core: oak {oak}, elm {elm}")
    assert oak[-1] == pytest.approx(1.0, rel=0.1), oak
    assert elm[-1] == pytest.approx(0.3, rel=0.1), elm


@pytest.mark.timeout(60)
def test_a_machine_slows_down_while_it_computes() -> None:
    with Lab("pair") as lab:
        oak = lab["oak"]
        busy = oak.start([sys.executable, "-c", "print('go')\nwhile True: pass"])
        busy.expect("go", 10)
        used = {}
        for cores in (1.0, 0.1, 0.5):
            oak.slow(cores)
            before_s, began_s = oak.usage().cpu_s, time.monotonic()
            time.sleep(1.0)
            used[cores] = (oak.usage().cpu_s - before_s) / (time.monotonic() - began_s)
            assert oak.cores() == pytest.approx(cores)
    # The computer around a virtual machine may be busy, and then the machine gets less than its limit allows.
    assert all(0.65 * cores <= seen <= 1.1 * cores for cores, seen in used.items()), used


def measure_links(*pairs: tuple[Machine, Machine], options: Sequence[str] = ()) -> list[float]:
    """Mbit/s that iperf3 received from the first to the second machine of each pair, all pairs at once.

    One figure for each pair, or two, of both ways at once, with --bidir.
    """
    senders = []
    for sender, receiver in pairs:
        server = receiver.start(["iperf3", "--server", "--one-off", "--forceflush"])
        server.expect("listening", timeout_s=10)
        client = ["iperf3", "--client", receiver.address, "--time", "2", "--json", *options]
        senders.append(sender.start(client))
    for process in senders:
        assert process.wait(timeout_s=60) == 0, process.output
    ends = [json.loads(process.output)["end"] for process in senders]
    return [end[key]["bits_per_second"] / 1e6 for end in ends for key in end if key.startswith("sum_received")]


def best_of_three(low: float, *pairs: tuple[Machine, Machine], options: Sequence[str] = ()) -> list[list[float]]:
    """Up to three measurements, until all figures of one reach `low`: a busy computer can hold up a machine's share.

    A virtual machine on a busy computer has carried 63 % of a link's rate for minutes, and `low` is below that. The lab
    promises that no link carries more than its rate.
    """
    seen: list[list[float]] = []
    while len(seen) < 3 and not (seen and min(seen[-1]) >= low):
        seen.append(measure_links(*pairs, options=options))
    return seen


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("rate", "low", "high"), [("1gbit", 600, 1000), ("100mbit", 60, 100)])
def test_a_link_carries_its_rate_both_ways(rate: str, low: float, high: float) -> None:
    text = f"machines: [{{name: oak, cores: 1, link: {rate}}}, {{name: elm, cores: 1, link: {rate}}}]"
    ways = {"there": (), "back": ("--reverse",), "both at once": ("--bidir",)}
    with Lab(parse_cluster(text, source="test", name="test")) as lab:
        for name, options in ways.items():
            seen = best_of_three(low, (lab["elm"], lab["oak"]), options=options)
            print(name, seen)
            assert max(min(figures) for figures in seen) >= low, (name, seen)
            assert max(max(figures) for figures in seen) <= high, (name, seen)


@pytest.mark.timeout(60)
def test_a_link_changes_its_rate_in_use() -> None:
    with Lab("pair") as lab:
        lab["elm"].limit_rate(50_000_000)
        assert 30 <= max(best_of_three(30, (lab["elm"], lab["oak"])))[0] <= 50
        lab["elm"].limit_rate(200_000_000)
        assert 120 <= max(best_of_three(120, (lab["elm"], lab["oak"])))[0] <= 200


@pytest.mark.timeout(90)
def test_homes_are_fast_inside_and_share_one_slow_uplink() -> None:
    with Lab("uplink") as lab:
        rosa, lily, fern, moss = (lab[name] for name in ("rosa", "lily", "fern", "moss"))
        inside = best_of_three(450, (rosa, lily), options=["--bidir"])
        between = best_of_three(10, (rosa, fern), options=["--bidir"])
        shared = [sum(both) for both in (measure_links((lily, fern), (rosa, moss)) for _ in range(2))]
        lab.uplinks[0].cut()
        pings = ["ping", "-c", "1", "-W", "1"]
        reached = {name: rosa.run([*pings, name]).returncode == 0 for name in ("lily", "fern", "moss")}
        lab.uplinks[0].mend()
        again = rosa.run(["ping", "-c", "1", "-w", "5", "moss"]).returncode
    print(inside, between, shared)
    assert max(min(figures) for figures in inside) >= 450, inside
    assert max(min(figures) for figures in between) >= 10, between
    assert max(max(figures) for figures in between) <= 20, between
    # Two senders measure windows of two seconds that are not quite the same; without sharing they would reach 35.
    assert max(shared) <= 24, shared
    assert max(shared) >= 10, shared
    assert reached == {"lily": True, "fern": False, "moss": False}
    assert again == 0


@pytest.mark.timeout(60)
def test_crawl_carries_ten_megabits_each_way() -> None:
    with Lab("crawl") as lab:
        seen = best_of_three(5, (lab["lily"], lab["rosa"]), options=["--bidir"])
    print(seen)
    assert max(min(figures) for figures in seen) >= 5, seen
    assert max(max(figures) for figures in seen) <= 10, seen


@pytest.mark.timeout(60)
def test_a_memory_limit_kills_the_greedy_process_and_only_that() -> None:
    with Lab("pair") as lab:
        oak, elm = lab["oak"], lab["elm"]
        oak.limit_memory(100 * 2**20)
        modest = [oak.start(["sh", "-c", "echo here; sleep 1000"]), elm.start(["sh", "-c", "echo here; sleep 1000"])]
        for process in modest:
            process.expect("here", timeout_s=10)
        greedy = oak.run([sys.executable, "-c", GREEDY])
        assert greedy.returncode == -9
        assert "got it all" not in greedy.output
        assert (oak.usage().num_oom_kills, elm.usage().num_oom_kills) == (1, 0)
        assert [process.returncode for process in modest] == [None, None]
        oak.limit_memory(None)
        assert "got it all" in oak.run([sys.executable, "-c", GREEDY]).output
