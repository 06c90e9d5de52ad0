"""How a worker that is behind gets the training state of a peer.

Each worker listens on its own address. Both sides prove that they know the run's secret before anything else is sent;
tensors travel as raw bytes in chunks, with a keyed checksum over all of them at the end. Nothing is unpickled.
Of frozen parameters the state has digests; the values of those that the asking worker does not have follow the state.
"""

import hmac
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch import Tensor
from torchft.checkpointing.transport import CheckpointTransport

from potluck.core.errors import GroupError
from potluck.core.proofs import prove
from potluck.engine.compute.tensor_bytes import chunks
from potluck.engine.group.addresses import host_and_port
from potluck.engine.group.frozen_transfer import OwnParameters
from potluck.engine.group.state_wire import allocate, describe, rebuild

_HELLO = b"potluck-state-2\n"
_NONCE_BYTES = 16
_TAG_BYTES = 32
_REQUEST = struct.Struct(">q")
_ANSWER = struct.Struct(">BI")  # 1 if the peer is at that step, and the header's length
_NAMES = struct.Struct(">I")  # the length of a JSON list of names
_CHUNK_BYTES = 1 << 20
_LARGEST_HEADER = 1 << 26
_HANDSHAKE_S = 5.0
_FOLLOWER_S = 60.0
NEWEST = -1  # asks for whatever step the peer is at
FINAL = -2  # asks for the state at the end of training, and waits for it
_OPENS_S = 1.5  # how long a follower waits for the end of an optimizer's step
_HAND_OVER_S = 5.0
_SILENCE_S = 2.0  # a peer that sends nothing for so long is given up, and the next one is asked
_STALL_S = 10.0  # the same for a peer that has begun to send: on a full link, TCP may take seconds to repeat packets


class BusyError(ConnectionError):
    """The peer is alive, but cannot give the requested state now."""


class StateExchange(CheckpointTransport):  # type: ignore[misc]
    """Serves this worker's state to peers while nothing changes it, and fetches a peer's."""

    def __init__(self, address: str, secret: bytes) -> None:
        self._secret = secret
        self._open: tuple[int, Callable[[], dict[str, Any]]] | None = None
        self._generation = 0
        self._still = threading.Condition()
        self._finished = threading.Event()
        self._closed = False
        self._followers: set[threading.Thread] = set()
        self._following: socket.socket | None = None
        self.peers: Callable[[], list[str]] = list
        self.own = OwnParameters()
        self._listener = socket.create_server((address, 0))
        self._address = f"{address}:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="potluck-state", daemon=True)
        self._thread.start()

    def open(self, step: int, capture: Callable[[], dict[str, Any]], *, is_elsewhere: bool = False) -> None:
        """Let peers read the state of this step: nothing may change it before `disallow_checkpoint`.

        `is_elsewhere`: the same state is now in other tensors, so peers that read the former ones must ask again.
        """
        with self._still:
            self._open = (step, capture)
            self._generation += is_elsewhere
            self._still.notify_all()

    def finish(self, step: int, capture: Callable[[], dict[str, Any]]) -> None:
        """Training is over: send this state to the peers that wait for the final state."""
        self._give_to_followers(step, capture, _FOLLOWER_S)

    def hand_over(self, step: int, capture: Callable[[], dict[str, Any]]) -> None:
        """This worker stops before the end: send this state to the peers that wait, so that they continue from it."""
        self._give_to_followers(step, capture, _HAND_OVER_S)

    def _give_to_followers(self, step: int, capture: Callable[[], dict[str, Any]], most_s: float) -> None:
        self.open(step, capture)
        self._finished.set()
        until = time.monotonic() + most_s
        for follower in list(self._followers):
            follower.join(max(0.0, until - time.monotonic()))

    # torchft's interface

    def metadata(self) -> str:
        return self._address

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: dict[str, Any], timeout: timedelta) -> None:
        """Nothing to do: a peer fetches the state itself, once `open` has made it readable."""

    def disallow_checkpoint(self) -> None:
        with self._still:
            self._open = None

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> dict[str, Any]:
        """The state of that step from a member that has it, if possible from the peer that torchft named.

        `timeout` is for a peer's answer. The state itself takes as long as its bytes do: 10 s, torchft's timeout, are
        too short for 12 MB on a link of 10 Mbit/s, and the others would wait for this worker for ever.
        """
        deadline = time.monotonic() + timeout.total_seconds()
        failures = []
        for peer in 2 * sorted(self.peers() or [metadata], key=lambda address: address != metadata):
            if peer == self._address:
                continue
            try:
                return self._fetch(peer, step, deadline)
            except (OSError, GroupError) as error:
                failures.append(f"{peer}: {error.args[0] if isinstance(error, GroupError) else error}")
        raise GroupError(
            f"no peer gave the state of step {step}: {'; '.join(failures)}",
            fix="check that every machine has the same POTLUCK_SECRET and reaches the others: potluck status",
        )

    def fetch(self, peer: str, step: int, timeout: timedelta) -> dict[str, Any]:
        """The state of that step from this peer and no other; `timeout` is for the peer's answer."""
        return self._fetch(peer, step, time.monotonic() + timeout.total_seconds())

    def stop_following(self) -> None:
        """End a `fetch` of the final state that another thread waits in."""
        if self._following is not None:
            with suppress(OSError):
                self._following.shutdown(socket.SHUT_RDWR)

    def shutdown(self, wait: bool = True) -> None:
        self._closed = True
        self._finished.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if wait:
            self._thread.join(timeout=1)
        self.own.close()

    # The side that has the state

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="potluck-state-peer", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A peer that breaks off or does not know the secret must not disturb training.
        with suppress(OSError, GroupError), connection:
            connection.settimeout(_HANDSHAKE_S)
            greeting = _receive(connection, len(_HELLO) + _NONCE_BYTES)
            if not greeting.startswith(_HELLO):
                return
            theirs, mine = greeting[len(_HELLO) :], os.urandom(_NONCE_BYTES)
            connection.sendall(mine + self._proof(b"server", theirs, mine))
            request = _receive(connection, _TAG_BYTES + _REQUEST.size)
            if not hmac.compare_digest(request[:_TAG_BYTES], self._proof(b"client", theirs, mine)):
                return
            connection.settimeout(60.0)
            step: int = _REQUEST.unpack(request[_TAG_BYTES:])[0]
            if step == FINAL and not self._reaches_the_end():
                return
            self._send_state(connection, step, self._proof(b"data", theirs, mine))

    def _reaches_the_end(self) -> bool:
        """Wait until training is over; False if this worker leaves before."""
        self._followers.add(threading.current_thread())
        self._finished.wait()
        return not self._closed

    def _send_state(self, connection: socket.socket, step: int, key: bytes) -> None:
        with self._still:
            if step < 0:
                self._still.wait_for(lambda: self._open is not None or self._closed, _OPENS_S)
            if self._open is None or step not in (NEWEST, FINAL, self._open[0]):
                connection.sendall(_ANSWER.pack(0, 0))
                return
            generation = self._generation
            header, tensors = describe(self._open[1]())
            if step < 0:  # no step waits for a follower: send a copy, however long that takes
                tensors = [tensor.detach().cpu().clone() for tensor in tensors]
        connection.sendall(_ANSWER.pack(1, len(header)) + header)
        tensors += _read_wanted(connection, self.own.values())
        tag = hmac.new(key, header, "sha256")
        for tensor in tensors:
            for piece in chunks(tensor, _CHUNK_BYTES):
                with self._still:  # the optimizer waits for at most one chunk
                    if step >= 0 and not (self._stands_at(step) and generation == self._generation):
                        return  # the state has moved on: break off, and the peer asks again
                    content = bytes(piece)
                tag.update(content)
                connection.sendall(content)
        connection.sendall(tag.digest())

    def _stands_at(self, step: int) -> bool:
        return self._open is not None and self._open[0] == step

    # The side that needs the state

    def _fetch(self, peer: str, step: int, deadline: float) -> dict[str, Any]:
        with socket.create_connection(host_and_port(peer), timeout=_left(deadline, _SILENCE_S)) as connection:
            mine = os.urandom(_NONCE_BYTES)
            connection.sendall(_HELLO + mine)
            answer = _receive(connection, _NONCE_BYTES + _TAG_BYTES)
            theirs = answer[:_NONCE_BYTES]
            if not hmac.compare_digest(answer[_NONCE_BYTES:], self._proof(b"server", mine, theirs)):
                raise GroupError("it does not know this run's secret", fix="start it with the same POTLUCK_SECRET")
            connection.sendall(self._proof(b"client", mine, theirs) + _REQUEST.pack(step))
            header_size: int
            if step == FINAL:
                self._following = connection
                connection.settimeout(None)  # until training or the peer ends
            has_it, header_size = _ANSWER.unpack(_receive(connection, _ANSWER.size))
            if not has_it or header_size > _LARGEST_HEADER:
                raise BusyError(f"it is not at step {step}")
            connection.settimeout(_STALL_S)
            header = _receive(connection, header_size)
            tag = hmac.new(self._proof(b"data", mine, theirs), header, "sha256")
            tree, tensors = allocate(header)
            lacking = self.own.find_lacking(rebuild(tree, tensors))
            names = json.dumps(list(lacking.asked)).encode() if lacking.asked else b""
            connection.sendall(_NAMES.pack(len(names)) + names)
            for tensor in [*tensors, *lacking.asked.values()]:
                for piece in chunks(tensor, _CHUNK_BYTES):
                    _receive_into(connection, piece)
                    tag.update(piece)
            if not hmac.compare_digest(_receive(connection, _TAG_BYTES), tag.digest()):
                raise ConnectionError("its state arrived damaged")
            state = rebuild(tree, tensors)
            assert isinstance(state, dict)
            if more := self.own.complete(lacking):
                state["user"]["default"]["model"] |= more
            return state

    def _proof(self, role: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
        return prove(self._secret, "state transfer", role, client_nonce, server_nonce)


def _read_wanted(connection: socket.socket, values: Mapping[str, Tensor]) -> list[Tensor]:
    """The parameters that the peer asks for beside the state."""
    (size,) = _NAMES.unpack(_receive(connection, _NAMES.size))
    if not size:
        return []
    if size > _LARGEST_HEADER:
        raise ConnectionError("it asks for too much")
    try:
        return [values[name] for name in json.loads(_receive(connection, size))]
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError("it asks for parameters that are not here") from error


def _left(deadline: float, at_most: float = float("inf")) -> float:
    left = min(deadline - time.monotonic(), at_most)
    if left <= 0:
        raise TimeoutError("out of time")
    return left


def _receive(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    _receive_into(connection, memoryview(content))
    return bytes(content)


def _receive_into(connection: socket.socket, target: memoryview) -> None:
    while target:
        received = connection.recv_into(target)
        if not received:
            raise ConnectionError("it broke off")
        target = target[received:]
