"""A worker that is lost while a group forms holds the others up for seconds, and a slow one gets more time."""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import pytest
from torch import distributed
from torch.distributed import PrefixStore, TCPStore

from benchmarks.support.free_port import free_port
from potluck.engine.group.gloo import GlooOnDevice

PEER = """
import sys
from datetime import timedelta
from torch import distributed
from torch.distributed import PrefixStore, TCPStore
options = distributed.ProcessGroupGloo._Options()
options._devices = [distributed.ProcessGroupGloo.create_device(hostname="127.0.0.2")]
options._timeout = timedelta(seconds=60)
store = TCPStore("127.0.0.1", int(sys.argv[1]), is_master=False)
group = distributed.ProcessGroupGloo(PrefixStore("group", store), 1, 2, options)
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def peer_of():
    """Starts a peer that has published where it listens, and is frozen from then on until it is thawed."""
    peers = []

    def start():
        port = free_port()
        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        before = store.num_keys()
        pipe = subprocess.PIPE
        peers.append(subprocess.Popen([sys.executable, "-c", PEER, str(port)], stdin=pipe, stdout=pipe, stderr=pipe))
        deadline = time.monotonic() + 60
        while store.num_keys() <= before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.5)
        os.kill(peers[-1].pid, signal.SIGSTOP)
        return store, peers[-1].pid

    yield start
    for peer in peers:
        peer.kill()
        peer.communicate()


def make_group():
    device = distributed.ProcessGroupGloo.create_device(hostname="127.0.0.1")
    return GlooOnDevice(timedelta(seconds=10), device)


@pytest.mark.timeout(90)
def test_a_worker_that_is_lost_while_a_group_forms_holds_the_others_up_for_seconds(peer_of):
    group, (store, _) = make_group(), peer_of()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="Connect timeout"):
        group._create_pg(PrefixStore("group", store), 0, 2)
    assert 4.0 < time.monotonic() - began < 7.0


@pytest.mark.timeout(90)
def test_a_worker_that_was_too_slow_gets_more_time_in_the_next_group(peer_of):
    group, (store, pid) = make_group(), peer_of()
    group._stretch = 2.0  # after an attempt that failed
    waking = subprocess.Popen(["sh", "-c", f"sleep 7; kill -CONT {pid}"])
    began = time.monotonic()
    group._create_pg(PrefixStore("group", store), 0, 2)
    assert time.monotonic() - began > 6.0
    assert group._stretch == 1.0
    waking.wait()
