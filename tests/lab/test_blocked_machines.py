"""Machines that cannot reach each other: named on every terminal, the others train on, stop and Ctrl-C end in time."""

import signal
import time

import pytest

from benchmarks.support.gathering import SMALL, Gathering
from tests.lab.whole_steps import assert_every_step_is_whole

pytestmark = [pytest.mark.needs_lab, pytest.mark.timeout(240)]
NAMED_S = 20.0
STOPPED_S = 15.0
LONG = [*SMALL, "--epochs", "100000", "--experiment-name", "long"]


@pytest.fixture
def gathering(tmp_path):
    with Gathering(tmp_path) as found:
        yield found


def gather(gathering, *host_options):
    host = gathering.host(*host_options)
    host.expect("rosa is here", 60)
    return host, gathering.join_all("lily", "fern")


def drop(gathering, machine, *what):
    """An nft rule of the machine's own that drops what comes in."""
    for command in (
        ["add", "table", "inet", "blocked"],
        ["add", "chain", "inet", "blocked", "input", "{ type filter hook input priority 0; }"],
        ["add", "rule", "inet", "blocked", "input", *what, "drop"],
    ):
        assert gathering.lab[machine].run(["nft", *command]).returncode == 0


def open_again(gathering, machine):
    assert gathering.lab[machine].run(["nft", "delete", "table", "inet", "blocked"]).returncode == 0


def expect_soon(processes, text, since):
    for process in processes:
        process.expect(text, max(0.1, since + NAMED_S - time.monotonic()))


def from_lily(gathering):
    return ("ip", "saddr", gathering.lab["lily"].address)


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.real_world), "during"])
def test_a_blocked_pair_is_named_everywhere_and_all_train_through_the_host(gathering, when):
    host, agents = gather(gathering)
    # Everything from lily is dropped on fern: a one-way drop, with which no connection works either way.
    if when == "before":
        drop(gathering, "fern", *from_lily(gathering))
        gathering.wait_until(lambda: gathering.ways()["fern-lily"] == "relayed", "still direct", 20)
    since = time.monotonic()
    train = gathering.start("lily", "train", *LONG)
    if when == "during":
        gathering.wait_for_step("long", 20)
        since = time.monotonic()
        drop(gathering, "fern", *from_lily(gathering))
    expect_soon([host, train, *agents.values()], "link lily-fern goes through rosa: neither can dial the other", since)
    assert "link lily-fern goes through rosa" in gathering.run("fern", "status")[1]
    gone_on = gathering.last_step("long")
    for name in ("rosa", "lily", "fern"):
        gathering.wait_for_step("long", gone_on + 20, name, timeout_s=NAMED_S)
    asked = time.monotonic()
    assert gathering.run("rosa", "stop")[0] == 0
    assert train.wait(STOPPED_S) == 130, train.output
    assert time.monotonic() - asked < STOPPED_S
    assert_every_step_is_whole(gathering.steps("long"), 64, num_breaks=1)


@pytest.mark.real_world
def test_direct_gradients_that_a_firewall_drops_leave_one_machine_out_and_the_others_train(gathering):
    host, agents = gather(gathering)
    train = gathering.start("rosa", "train", *LONG, "--direct")
    gathering.wait_for_step("long", 20)
    since = time.monotonic()
    drop(gathering, "fern", *from_lily(gathering))
    out = "takes no part in run long: it and"
    expect_soon([host, train, *agents.values()], out, since)
    assert out in gathering.run("rosa", "status")[1]
    stalled_at = gathering.last_step("long")
    gathering.wait_for_step("long", stalled_at + 20, "rosa", timeout_s=30)
    resting = next(name for name in ("lily", "fern") if f"{name} {out}" in train.output)
    open_again(gathering, "fern")
    gathering.wait_until(lambda: gathering.last_step("long", resting) > stalled_at + 20, "it stays out", 60)
    train.send_signal(signal.SIGINT)
    assert train.wait(STOPPED_S) == 130, train.output
    assert_every_step_is_whole(gathering.steps("long"), 64, num_breaks=2)


@pytest.mark.real_world
def test_ctrl_c_ends_every_command_in_time_while_the_host_is_frozen(gathering):
    # No successor: the commands have nobody else to ask.
    _, agents = gather(gathering, "--no-successor")
    train = gathering.start("lily", "train", *LONG)
    gathering.wait_for_step("long", 20)
    gathering.lab["rosa"].freeze()
    try:
        agents["fern"].expect("rosa has not answered", NAMED_S)
        # Commands of different machines and terminals at once; lily's agent is the last, since others work beside it.
        stop = gathering.start("lily", "stop", "long")
        for processes in ([train, agents["fern"]], [agents["lily"]]):
            asked = time.monotonic()
            for process in processes:
                process.send_signal(signal.SIGINT)
            for process in processes:
                assert process.wait(STOPPED_S + 5) in (0, 130), process.output
                assert time.monotonic() - asked < STOPPED_S, process.output
        assert stop.wait(STOPPED_S) == 1, stop.output
        assert "does not answer" in stop.output
    finally:
        gathering.lab["rosa"].thaw()
