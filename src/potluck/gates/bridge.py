"""Carries bytes between two connections, in both directions, as fast as each side takes them."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from potluck.gates.secure import EndOfStreamError

_LAST_BYTES_S = 20.0  # for bytes that an ended connection left to a slow reader
_WAIT_S = 0.03
WELCOME, REFUSED = b"\0", b"\1"


class End(Protocol):
    """One of the two connections of a bridge."""

    socket: socket.socket

    @property
    def is_full(self) -> bool:
        """Whether bytes that were given still wait for `flush`."""
        ...

    def take(self) -> memoryview:
        """The bytes that have arrived; valid until the next `take` of any End."""
        ...

    def give(self, content: memoryview) -> None:
        """Send bytes, and keep those that the kernel does not take."""
        ...

    def flush(self) -> None:
        """Try again to send the bytes that were kept."""
        ...

    def say_goodbye(self) -> None:
        """Signal the end of the stream to the other side, where closing the socket does not signal it."""
        ...

    def close(self, *, is_orderly: bool = True) -> None:
        """Close the connection; reset it if its end is not orderly."""
        ...


class Bridge:
    """Joins two connections into one, until either of them ends.

    `near` is the connection on this machine or, where the host relays, from the machine that asked; `far` leads to
    another machine. With `awaits_welcome`, the far gate's first byte says whether it lets the connection in. The bridge
    ends when bytes come while `may_pass` is false; bytes of the end `held` wait while `must_wait` is true.
    """

    def __init__(
        self,
        near: End,
        far: End,
        *,
        awaits_welcome: bool,
        ended: Callable[["Bridge"], None],
        may_pass: Callable[[], bool] = lambda: True,
        held: End | None = None,
        must_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self.near, self.far = near, far
        self.may_pass = may_pass
        self.held, self.must_wait = held, must_wait
        self.sent_bytes = self.received_bytes = 0
        self._awaits_welcome = awaits_welcome
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._outward = _Pump(near, far, self)
        self._inward = _Pump(far, near, self)
        self._is_over = False
        self._is_ending = False

    def begin(self) -> None:
        """Start to carry, first the bytes that have already arrived."""
        for pump in (self._outward, self._inward):
            if not self._is_ending:
                pump.start()

    def admit(self, content: memoryview) -> memoryview:
        """Bytes of the far side without the first, the far gate's welcome; EndOfStreamError if that is a refusal."""
        if not self._awaits_welcome:
            return content
        self._awaits_welcome = False
        if content[:1] != WELCOME:
            raise EndOfStreamError(is_orderly=False)
        return content[1:]

    @property
    def is_ending(self) -> bool:
        return self._is_ending

    def end(self, *, is_orderly: bool) -> None:
        """Stop reading, and close; after an orderly end, the bridge first sends the remaining bytes and the goodbye."""
        if self._is_ending:
            return
        self._is_ending = True
        for end in (self.near, self.far):
            self._loop.remove_reader(end.socket.fileno())
        if not is_orderly:
            self.finish(False)
            return
        self.far.say_goodbye()
        for end in (self.near, self.far):
            if end.is_full:
                self._loop.add_writer(end.socket.fileno(), self._drain)
        self._loop.call_later(_LAST_BYTES_S, self.finish, False)
        self._drain()

    def _drain(self) -> None:
        try:
            for end in (self.near, self.far):
                end.flush()
        except OSError:
            self.finish(False)
            return
        if not (self.near.is_full or self.far.is_full):
            self.finish(True)

    def finish(self, is_orderly: bool) -> None:
        """Close both connections."""
        if self._is_over:
            return
        self._is_over = self._is_ending = True
        for end in (self.near, self.far):
            self._loop.remove_reader(end.socket.fileno())
            self._loop.remove_writer(end.socket.fileno())
            end.close(is_orderly=is_orderly)
        self._ended(self)


class _Pump:
    """Carries bytes in one direction of a bridge."""

    def __init__(self, source: End, sink: End, bridge: Bridge) -> None:
        self._source, self._sink, self._bridge = source, sink, bridge
        self._is_outward = sink is bridge.far
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        self._loop.add_reader(self._source.socket.fileno(), self._carry)
        self._carry()

    def _carry(self) -> None:
        bridge = self._bridge
        if self._source is bridge.held and bridge.must_wait():
            self._loop.remove_reader(self._source.socket.fileno())
            self._loop.call_later(_WAIT_S, self._look_again)
            return
        try:
            content = self._source.take()
            if not content:
                return
            if not bridge.may_pass():
                raise EndOfStreamError(is_orderly=False)
            if self._is_outward:
                bridge.sent_bytes += len(content)
            else:
                content = bridge.admit(content)
                bridge.received_bytes += len(content)
            self._sink.give(content)
        except EndOfStreamError as error:
            bridge.end(is_orderly=error.is_orderly)
            return
        except OSError:
            bridge.end(is_orderly=False)
            return
        if self._sink.is_full:
            self._loop.remove_reader(self._source.socket.fileno())
            self._loop.add_writer(self._sink.socket.fileno(), self._go_on)

    def _look_again(self) -> None:
        if not self._bridge.is_ending:
            self.start()

    def _go_on(self) -> None:
        try:
            self._sink.flush()
        except OSError:
            self._bridge.finish(False)
            return
        if self._sink.is_full:
            return
        self._loop.remove_writer(self._sink.socket.fileno())
        self._loop.add_reader(self._source.socket.fileno(), self._carry)
