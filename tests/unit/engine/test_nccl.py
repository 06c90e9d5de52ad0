"""The variables of NCCL are completed in the worker, from the routes to the other members; this needs no GPU."""

import socket
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
from torch.distributed.distributed_c10d import AllreduceOptions

from potluck.engine.group.nccl import NcclGroups, NcclWithTimeouts, interface_to_all, interface_with, own_card, own_nccl
from potluck.machine.facts import LOOPBACK
from potluck.machine.interfaces import read_interfaces, read_routes
from tests.unit.engine.test_member_proof import MEMBER


def default_route():
    return next((route for route in read_routes() if route.gateway), None)


def test_a_cpu_has_no_nccl_and_no_card():
    assert own_nccl(torch.device("cpu")) == own_card(torch.device("cpu")) == ""


def test_an_all_reduce_has_the_timeout_that_it_was_given():
    """torchft clears an all-reduce's timeout, and would then wait as long as for the group to form."""
    group = NcclWithTimeouts.__new__(NcclWithTimeouts)  # its constructor needs NCCL
    group._use_abort, group._timeout = True, timedelta(seconds=10)
    options = AllreduceOptions()
    options.timeout = timedelta(seconds=77)
    group._opts_hook(options)
    assert group._wrap_work(None, options)._timeout == timedelta(seconds=77)


def test_an_unknown_address_or_the_loopback_names_no_interface():
    assert interface_to_all(["127.0.0.1"]) == interface_to_all([""]) == interface_to_all([]) == interface_with("") == ""
    assert interface_with("127.0.0.1") == ""


@pytest.mark.skipif(default_route() is None, reason="this machine has no default route")
def test_the_interface_is_the_one_that_linux_would_use(monkeypatch, tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.77", 9))
        mine = probe.getsockname()[0]
    name = interface_to_all(["192.0.2.77"])
    assert name == interface_with(mine)
    assert next(one for one in read_interfaces() if one.name == name).kind != LOOPBACK
    for variable in ("NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_DEBUG", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(variable, "")  # the fixture restores what `prepare` sets
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    groups = NcclGroups("rosa", mine, tmp_path / "nccl.log")
    members = [replace(MEMBER, machine="rosa"), replace(MEMBER, machine="lily", lan_address="192.0.2.77")]
    groups.prepare(members)
    assert groups.defaults["NCCL_SOCKET_IFNAME"] == f"={name}"
    assert groups.in_force()["NCCL_DEBUG_FILE"] == str(tmp_path / "nccl.log")
    groups.prepare(members[:1])
    assert groups.in_force()["NCCL_SOCKET_IFNAME"] == f"={name}"  # NCCL has read it: it stays


def test_workers_of_one_machine_take_the_interface_that_others_would_reach(monkeypatch, tmp_path):
    own = next((one for one in read_interfaces() if one.kind != LOOPBACK and one.addresses), None)
    if own is None:
        pytest.skip("this machine has no network")
    for variable in ("NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    groups = NcclGroups("rosa", own.addresses[0].partition("/")[0], tmp_path / "nccl.log")
    groups.prepare([replace(MEMBER, machine="rosa")])
    assert groups.defaults.get("NCCL_SOCKET_IFNAME") == f"={own.name}"
