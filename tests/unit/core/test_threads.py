"""How many threads a worker of several on one machine uses: its part of the cores, or of a container's quota."""

import os

import pytest

from potluck.core.environment import plain_solo_variables, read_launch, with_workers_of_one_machine


@pytest.fixture(autouse=True)
def eight_cores(workplace, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("quota", "threads"), [(None, 4), (6, 3), (1, 1), (16, 4)])
def test_workers_of_one_machine_divide_its_cores_or_its_quota(monkeypatch, quota, threads):
    both = ["cpu", "cpu"]
    assert plain_solo_variables({}, both, quota)["OMP_NUM_THREADS"] == str(threads)
    assert with_workers_of_one_machine(both, 1, {}, quota)[1]["POTLUCK_THREADS"] == str(threads)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert read_launch(quota=quota).num_threads == threads
    monkeypatch.setenv("POTLUCK_THREADS", "7")
    assert read_launch(quota=quota).num_threads == 7


def test_a_single_process_gets_a_number_of_threads_only_with_a_quota():
    assert "OMP_NUM_THREADS" not in plain_solo_variables({}, ["cpu"])
    assert plain_solo_variables({}, ["cpu"], 3)["OMP_NUM_THREADS"] == "3"
    assert plain_solo_variables({"OMP_NUM_THREADS": "5"}, ["cpu"], 3)["OMP_NUM_THREADS"] == "5"
