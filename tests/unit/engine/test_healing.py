"""How a state travels between workers, and what is refused."""

import pickle
import socket
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
import torch

from potluck.core.errors import GroupError
from potluck.engine.group.state_transfer import NEWEST, BusyError, StateExchange
from potluck.engine.group.state_wire import allocate, describe, rebuild

STATE = {
    "user": {
        "default": {
            "model": {"weight": torch.arange(700_000.0)},
            "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}},
        }
    },
    "torchft": {"step": 7, "batches_committed": 7},
    "odd": [(1, 2.5, None, True, "text"), torch.zeros(0), torch.ones(3, dtype=torch.bfloat16), torch.tensor(5)],
}
SECONDS = timedelta(seconds=10)


@pytest.fixture
def exchanges():
    made = []

    def make(secret=b"secret", *, step=None, state=STATE):
        exchange = StateExchange("127.0.0.1", secret)
        if step is not None:
            exchange.open(step, lambda: state)
        made.append(exchange)
        return exchange

    yield make
    for exchange in made:
        exchange.shutdown()


def same(first, second):
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and all(map(same, first, second))
    return first == second


def test_a_state_survives_its_description():
    header, tensors = describe(STATE)
    tree, empty = allocate(header)
    for target, source in zip(empty, tensors, strict=True):
        target.copy_(source)
    assert same(rebuild(tree, empty), STATE)


def test_a_state_arrives_whole(exchanges):
    peer, me = exchanges(step=7), exchanges()
    assert same(me.recv_checkpoint(0, peer.metadata(), 7, SECONDS), STATE)


def test_a_state_may_take_longer_than_the_time_for_an_answer(exchanges):
    peer, me = exchanges(step=7), exchanges()
    with liar(peer=peer.metadata(), pause_s=0.03) as slow:
        began = time.monotonic()
        assert same(me.recv_checkpoint(0, slow, 7, timedelta(seconds=1)), STATE)
    assert time.monotonic() - began > 1


def test_a_peer_that_stops_sending_is_given_up(exchanges, monkeypatch):
    monkeypatch.setattr("potluck.engine.group.state_transfer._STALL_S", 0.2)
    peer, me = exchanges(step=7), exchanges()
    with liar(peer=peer.metadata(), pause_s=1.0) as stalled, pytest.raises(GroupError, match="timed out"):
        me.recv_checkpoint(0, stalled, 7, SECONDS)


def test_a_peer_with_a_wrong_secret_is_refused_by_both_sides(exchanges):
    peer, me = exchanges(b"another", step=7), exchanges()
    with pytest.raises(GroupError, match="does not know this run's secret"):
        me.recv_checkpoint(0, peer.metadata(), 7, SECONDS)
    # A peer that skips the check of the server's proof still gets nothing.
    host, port = exchanges(step=7).metadata().split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"potluck-state-2\n" + bytes(16))
        assert len(connection.recv(48, socket.MSG_WAITALL)) == 48
        connection.sendall(bytes(32) + (7).to_bytes(8, "big"))
        assert connection.recv(1) == b""


def test_a_state_of_another_step_is_not_given(exchanges):
    peer, me = exchanges(step=8), exchanges()
    with pytest.raises(GroupError, match="not at step 7"):
        me.recv_checkpoint(0, peer.metadata(), 7, SECONDS)
    peer.disallow_checkpoint()
    with pytest.raises(GroupError, match="not at step 8"):
        me.recv_checkpoint(0, peer.metadata(), 8, SECONDS)


class Harmful:
    ran = False

    def __reduce__(self):
        return (setattr, (Harmful, "ran", True))


def test_a_pickle_is_never_read(exchanges):
    with pytest.raises(GroupError, match="cannot be sent"):
        describe({"x": Harmful()})
    for header in (pickle.dumps(Harmful()), b"{}", b'{"tree": {"x": 1}, "tensors": [["load", [1]]]}', b"\xff"):
        with pytest.raises(GroupError):
            allocate(header)
    with pytest.raises(GroupError, match="unknown kind"):
        rebuild({"python/object": "x"}, [])
    me = exchanges()
    with liar(pickle.dumps(Harmful())) as address, pytest.raises(GroupError):
        me.recv_checkpoint(0, address, 7, SECONDS)
    assert not Harmful.ran


class liar:  # noqa: N801
    """A server on loopback that answers with bytes of its own, through a cut or a flipped bit of a real peer's."""

    def __init__(self, answer=b"", *, peer=None, cut=None, flip=None, pause_s=0.0):
        self.answer, self.peer, self.cut, self.flip, self.pause_s = answer, peer, cut, flip, pause_s

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def __exit__(self, *_):
        self.listener.close()
        self.thread.join()

    def serve(self):
        connection, _ = self.listener.accept()
        with suppress(OSError), connection:  # whoever notices the lie hangs up
            if self.peer is None:
                connection.sendall(self.answer)
                return
            host, port = self.peer.split(":")
            with socket.create_connection((host, int(port))) as real:
                threading.Thread(target=self.pump, args=(connection, real), daemon=True).start()
                sent = 0
                while content := real.recv(1 << 16):
                    content = bytearray(content)
                    if self.flip is not None and sent <= self.flip < sent + len(content):
                        content[self.flip - sent] ^= 1
                    if self.cut is not None:
                        content = content[: max(0, self.cut - sent)]
                    time.sleep(self.pause_s)
                    connection.sendall(content)
                    sent += len(content)
                    if self.cut is not None and sent >= self.cut:
                        connection.shutdown(socket.SHUT_RDWR)
                        return

    @staticmethod
    def pump(source, target):
        try:
            while content := source.recv(1 << 16):
                target.sendall(content)
        except OSError:
            pass


@pytest.mark.parametrize("damage", [{"cut": 500_000}, {"flip": 1_000_000}, {"flip": 60}, {"cut": 100}])
def test_a_damaged_or_cut_state_is_refused_and_another_peer_is_asked(exchanges, damage):
    good, me = exchanges(step=7), exchanges()
    with liar(peer=good.metadata(), **damage) as address:
        me.peers = lambda: [address, good.metadata()]
        assert same(me.recv_checkpoint(0, address, 7, SECONDS), STATE)


def test_nothing_is_sent_of_a_state_that_moves_on(exchanges):
    peer, me = exchanges(), exchanges()

    def capture():
        threading.Timer(0.0, peer.disallow_checkpoint).start()
        return {"model": torch.zeros(50_000_000)}

    peer.open(7, capture)
    with pytest.raises(GroupError, match="no peer gave the state of step 7"):
        me.recv_checkpoint(0, peer.metadata(), 7, SECONDS)


def test_a_peer_that_follows_gets_whatever_step_there_is(exchanges):
    has, wants = exchanges(step=7), exchanges()
    assert same(wants.fetch(has.metadata(), NEWEST, SECONDS), STATE)
    has.disallow_checkpoint()
    with pytest.raises(BusyError, match="it is not at step"):
        wants.fetch(has.metadata(), NEWEST, SECONDS)
