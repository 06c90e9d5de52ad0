"""However a lab ends, nothing of it stays, and nothing that is not its own goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Lab, LabError, attach, load_cluster, record, sweep
from lab.cgroup_layout import LAB_DIR_PREFIX
from lab.cluster import DeadEnd
from lab.record import path_of

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(60)]

REPOSITORY = Path(__file__).parents[2]
NUM_CYCLES = 15


def start_cli(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "lab", *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_up(cluster: str = "laptops") -> tuple["subprocess.Popen[str]", str]:
    """A lab kept up by another process, and its name."""
    process = start_cli("up", cluster)
    assert process.stdout is not None
    greeting = process.stdout.readline()
    assert "is up after" in greeting, greeting + process.stdout.read()
    return process, greeting.split()[1]


def run_cli(*arguments: str) -> str:
    process = start_cli(*arguments)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    return output


def finish(process: "subprocess.Popen[str]") -> str:
    output, _ = process.communicate(timeout=20)
    return output


def kernel_networks() -> int:
    """Network namespaces that the kernel has memory for, also those that no process is in; it keeps a few spare."""
    lines = Path("/proc/slabinfo").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("net_namespace")), 0)


def test_many_cycles_leave_nothing(traces: Callable[[], set[str]]) -> None:
    with Lab("laptops"):
        pass
    before, networks_before = traces(), kernel_networks()
    assert not [trace for trace in before if trace.startswith(("record", "cgroup"))]
    times_s = []
    for _ in range(NUM_CYCLES):
        began_s = time.monotonic()
        with Lab("laptops") as lab:
            times_s.append(time.monotonic() - began_s)
            lab["lily"].run(["true"])
    print(f"up: median {sorted(times_s)[NUM_CYCLES // 2]:.2f} s, slowest {max(times_s):.2f} s")
    deadline = time.monotonic() + 10
    while traces() != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert traces() == before
    assert kernel_networks() - networks_before < NUM_CYCLES
    assert max(times_s) < 2.0


def test_up_takes_less_than_two_seconds_for_three_machines() -> None:
    began_s = time.monotonic()
    with Lab("laptops"):
        assert time.monotonic() - began_s < 2.0


def test_an_exception_leaves_nothing() -> None:
    def fail_in_a_lab() -> None:
        with Lab("laptops") as lab:
            lab["lily"].start(["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done"])
            lab["fern"].freeze()
            lab["rosa"].cut()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_a_lab()


def test_a_lab_that_cannot_be_built_leaves_nothing(traces: Callable[[], set[str]]) -> None:
    before = traces()
    laptops = load_cluster("laptops")
    # The last machine cannot have a second loopback, which shows when most of the lab stands.
    last = replace(laptops.machines[-1], dead_ends=(DeadEnd(interface="lo", address="10.0.0.1/8"),))
    with pytest.raises(LabError, match="ip refuses: RTNETLINK answers: File exists"):
        Lab(replace(laptops, machines=(*laptops.machines[:-1], last))).__enter__()
    assert traces() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_the_lab_down(number: signal.Signals) -> None:
    process, name = start_up()
    process.send_signal(number)
    assert f"taking lab {name} down" in finish(process)
    assert process.returncode in (130, 128 + number)
    assert not path_of(name).exists()


@pytest.fixture
def foreign() -> Iterator[list[Path]]:
    """Things that look like a lab's and are not."""
    roots = [path for path in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/freezer")) if path.is_dir()]
    directories = [root / f"{LAB_DIR_PREFIX}of-somebody-else" for root in roots or [Path("/sys/fs/cgroup")]]
    for directory in directories:
        directory.mkdir()
    subprocess.run(["ip", "link", "add", "potluck-veth", "type", "veth", "peer", "name", "potluck-peer"], check=True)
    sleeper = subprocess.Popen(["sleep", "1000"])
    yield directories
    still_runs = sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()
    subprocess.run(["ip", "link", "del", "potluck-veth"], check=True)
    for directory in directories:
        directory.rmdir()
    assert still_runs


@pytest.mark.parametrize("verb", ["up", "down"])
@pytest.mark.parametrize("frozen", [False, True])
def test_after_sigkill_the_next_lab_removes_the_leftovers_and_nothing_else(
    verb: str, frozen: bool, foreign: list[Path]
) -> None:
    killed, name = start_up()
    lily = attach.find_machine(attach.labs_up(), "lily", name)
    busy = start_cli("exec", "lily", "--lab", name, "--", "sh", "-c", "setsid sleep 1000 & sleep 1000")
    while lily.usage().num_processes < 3:
        time.sleep(0.02)
    if frozen:
        lily.freeze()
    killed.kill()
    finish(killed)
    assert path_of(name).exists()
    if verb == "down":
        assert f"removed what lab {name} had left" in run_cli("down")
        assert run_cli("down") == "no lab is up, and none has left anything\n"
    else:
        with Lab("laptops") as lab:
            assert lab.name == name
    finish(busy)
    assert not path_of(name).exists()
    assert all(directory.is_dir() for directory in foreign)


KILLED_WHILE_BUILDING = """
import os, signal, sys, threading, time
from lab import Lab
threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGKILL)).start()
with Lab("laptops"):
    time.sleep(1)
"""


def test_sigkill_at_any_moment_of_building_leaves_what_the_next_can_remove(traces: Callable[[], set[str]]) -> None:
    before = traces()
    for milliseconds in range(0, 200, 10):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED_WHILE_BUILDING, str(milliseconds / 1000)], cwd=REPOSITORY, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        with record.locked():
            sweep.remove_abandoned()
        deadline = time.monotonic() + 5
        while traces() != before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert traces() == before, f"killed after {milliseconds} ms"


KILLED_WHILE_WRITING = """
import os, signal
from pathlib import Path
from lab import Lab
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Lab("laptops").__enter__()
"""


def test_sigkill_inside_the_write_of_a_record_leaves_what_the_next_can_remove() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING], cwd=REPOSITORY, check=False)
    assert killed.returncode == -signal.SIGKILL
    half_written = list(record.STATE_DIR.glob("*.new"))
    assert half_written
    with Lab("laptops"):
        assert not any(path.exists() for path in half_written)


def test_sigkill_alone_ends_every_process_of_the_lab(traces: Callable[[], set[str]]) -> None:
    before = traces()
    killed, name = start_up()
    busy = start_cli("exec", "lily", "--lab", name, "--", "sh", "-c", "echo here; sleep 1000")
    assert busy.stdout is not None
    assert busy.stdout.readline() == "here\n"
    killed.kill()
    finish(killed)
    finish(busy)
    deadline = time.monotonic() + 5
    while (left := traces() - before) and time.monotonic() < deadline:
        if all(trace.startswith(("cgroup", "record")) for trace in left):
            break
        time.sleep(0.02)
    assert {trace.split()[0] for trace in left} == {"cgroup", "record"}
    run_cli("down")


def test_two_labs_are_up_at_once_and_do_not_meet() -> None:
    with Lab("laptops") as one, Lab("laptops") as other:
        assert one.name != other.name
        assert one["rosa"].address == other["rosa"].address
        server = one["rosa"].start([sys.executable, "-m", "http.server", "8000"])
        server.expect("Serving", 20)
        ask = [sys.executable, "-c", f"import socket; socket.create_connection(({one['rosa'].address!r}, 8000), 5)"]
        assert one["lily"].run(ask).returncode == 0
        refused = other["lily"].run(ask)
        assert "ConnectionRefusedError" in refused.output
        other["rosa"].kill()
        other["lily"].cut()
        assert server.returncode is None
        assert not one["lily"].is_cut()


def test_a_lab_whose_owner_lives_is_not_swept_by_the_next() -> None:
    with Lab("laptops") as one:
        with Lab("pair"):
            pass
        assert one["lily"].run(["hostname"]).output == "lily"


def test_a_lab_taken_down_from_elsewhere_ends_in_peace() -> None:
    with Lab("laptops") as lab:
        process = lab["lily"].start(["sleep", "1000"])
        assert f"lab {lab.name} is down" in run_cli("down", "--lab", lab.name)
        assert process.wait(5) == -signal.SIGKILL
        assert not lab.is_up()


def test_a_record_from_before_a_reboot_is_only_a_file() -> None:
    with Lab("pair") as lab:
        text = path_of(lab.name).read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        old = path_of("before-reboot")
        old.write_text(
            text.replace(boot, "another-boot").replace(f'"name": "{lab.name}"', '"name": "before-reboot"', 1)
        )
        with Lab("pair"):
            assert not old.exists()
        assert lab["oak"].run(["hostname"]).output == "oak"


def test_a_program_that_outlives_its_lab_is_impossible() -> None:
    with Lab("laptops") as lab:
        process = lab["lily"].start(["sh", "-c", "nohup setsid sleep 1000 >/dev/null 2>&1 & echo $!"])
        process.wait(10)
        pids = Path(f"/sys/fs/cgroup/freezer/{LAB_DIR_PREFIX}{lab.name}/lily/cgroup.procs")
        survivors = pids.read_text().split() if pids.exists() else []
        assert lab["lily"].usage().num_processes == 1
    for pid in survivors:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
