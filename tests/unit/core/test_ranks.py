"""The variables that people set by hand: each mistake is named, with what to type."""

import pytest

from potluck.core.environment import read_launch
from potluck.core.errors import SettingsError
from potluck.core.ranks import Ranks, read_ranks

MASTER = {"MASTER_ADDR": "192.168.1.50", "MASTER_PORT": "29501"}
VARIABLES = ("RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *MASTER)


@pytest.mark.parametrize("variables", [{}, {"WORLD_SIZE": "1"}, {"RANK": "0", "WORLD_SIZE": "1"}, {"NODE_RANK": "0"}])
def test_a_process_of_its_own_needs_no_variable(variables):
    assert read_ranks(variables) == Ranks()


def test_torchruns_variables_are_taken_as_they_are():
    found = read_ranks({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", **MASTER})
    assert found == Ranks(rank=3, world_size=4, local_rank=1, master_addr="192.168.1.50", master_port=29501)


@pytest.mark.parametrize(
    ("variables", "rank", "note"),
    [
        ({"NODE_RANK": "1", "WORLD_SIZE": "2"}, 1, "NODE_RANK=1 is taken as RANK=1: one worker on each machine"),
        (
            {"NODE_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"},
            3,
            "NODE_RANK=1, LOCAL_WORLD_SIZE=2 and LOCAL_RANK=1 are taken as RANK=3",
        ),
        ({"NODE_RANK": "7", "RANK": "1", "WORLD_SIZE": "2"}, 1, None),  # RANK wins
    ],
)
def test_the_number_of_a_machine_stands_in_for_the_number_of_a_worker(variables, rank, note):
    found = read_ranks({**variables, **MASTER})
    assert found.rank == rank
    assert found.notes == (() if note is None else (note,))


def test_worker_0_may_leave_its_own_address_out():
    found = read_ranks({"RANK": "0", "WORLD_SIZE": "2"})
    assert (found.master_addr, found.master_port) == ("", None)


@pytest.mark.parametrize(
    ("variables", "error", "fix"),
    [
        ({"RANK": "1"}, "RANK=1 is set, but WORLD_SIZE is not", "export WORLD_SIZE=2"),
        ({"NODE_RANK": "1"}, "NODE_RANK=1 is set, but WORLD_SIZE is not", "unset NODE_RANK"),
        ({"NODE_RANK": "0", **MASTER}, "NODE_RANK=0 is set, but WORLD_SIZE is not", "export WORLD_SIZE=2"),
        ({"WORLD_SIZE": "2", **MASTER}, "RANK is not", "export RANK=0 on one machine and RANK=1 on the other"),
        ({"WORLD_SIZE": "4", **MASTER}, "which of the 4 workers", "up to RANK=3"),
        ({"RANK": "2", "WORLD_SIZE": "2", **MASTER}, "RANK=2, but WORLD_SIZE=2", "RANK=1 on the other"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "worker 1 of 2, but MASTER_ADDR is not set", "export MASTER_ADDR="),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK=one is no whole number", "export RANK=1"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1 is no whole number", "export RANK=1"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "x"}, "MASTER_PORT=x is no whole number", "MASTER_PORT"),
        ({"NODE_RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, "neither RANK nor LOCAL_WORLD_SIZE", "export"),
        ({"NODE_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}, "LOCAL_RANK is not set", "LOCAL_RANK=0"),
    ],
)
def test_a_missing_variable_is_named_with_what_to_type(variables, error, fix):
    with pytest.raises(SettingsError) as raised:
        read_ranks(variables)
    assert error in str(raised.value.args[0])
    assert fix in raised.value.fix


def test_an_address_that_nobody_uses_is_told_and_as_a_flag_refused():
    assert read_ranks(MASTER).notes == ("MASTER_ADDR=192.168.1.50 has no effect: RANK and WORLD_SIZE are not set",)
    with pytest.raises(SettingsError, match=r"--master-addr 10\.0\.0\.1 is where several workers meet"):
        read_ranks({}, ("10.0.0.1", 29500))


def test_what_an_agent_starts_never_trips_over_leftovers(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("POTLUCK_LIGHTHOUSE", "http://127.0.0.1:1")
    monkeypatch.setenv("RANK", "one")
    monkeypatch.setenv("WORLD_SIZE", "")
    launch = read_launch()
    assert (launch.rank, launch.expected, launch.is_seen) == (0, 1, False)


@pytest.mark.parametrize(("local_rank", "is_seen"), [("0", True), ("1", False)])
def test_one_worker_of_each_machine_is_seen(monkeypatch, local_rank, is_seen):
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": local_rank, **MASTER}.items():
        monkeypatch.setenv(name, value)
    assert read_launch().is_seen is is_seen
