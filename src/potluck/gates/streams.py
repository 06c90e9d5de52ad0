"""Connections that a gate carries: from a worker here to another machine, from there to a worker here, or relayed."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from potluck.gates.bridge import REFUSED, WELCOME, Bridge, End
from potluck.gates.entrance import HANDSHAKE_S, oldest_of_busiest
from potluck.gates.lease import HostLease
from potluck.gates.links import BROKEN
from potluck.gates.loopback import lighthouse_address
from potluck.gates.messages import Kind, Open, Settings
from potluck.gates.ports import ExposedPorts, StandIn, address_in, in_run
from potluck.gates.secure import PlainEnd, SecureEnd
from potluck.gates.sockets import is_own_users, prepare, watch_over
from potluck.gates.ways import NoWayError, Ways

_PATIENCE_S = 3.0
_AGAIN_S = 0.1
_MOST_VISITORS = 256
_VISITORS_A_MEMBER = 4  # an agent has two, and users on its machine type commands
IDLE_S = 320.0  # without a byte: longer than the host lets a machine measure before it answers


class Way(NamedTuple):
    """The machines and the run that a connection is carried for; the first machine is at its far end."""

    machines: tuple[str, ...]
    run: str
    host: str = ""
    """Of a connection to the host's lighthouse: the machine that was the host when it was opened."""


class Streams:
    """All connections that this gate carries."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        exposed: ExposedPorts,
        kind_of: Callable[[StandIn], Kind],
        ways: Ways,
        lease: HostLease | None = None,
    ) -> None:
        self._settings = settings
        self._lease = lease
        self._exposed = exposed
        self._kind_of = kind_of
        self._ways = ways
        self._bridges: dict[Bridge, Way] = {}
        self._visitors: dict[Bridge, str] = {}
        """Connections to the host's service, by the address that they come from."""

    async def carry(self, asked: StandIn, connection: socket.socket) -> None:
        """Carry the connection of a worker here that has dialled a stand-in to the other machine."""
        near = PlainEnd(prepare(connection))
        if not is_own_users(connection):
            near.close(is_orderly=False)
            return
        settings, kind = self._settings(), self._kind_of(asked)
        host = settings.host if kind == "host" else ""
        try:
            if asked.machine == settings.machine:
                here = PlainEnd(await self._connect(asked.machine, Open(run=asked.run, port=asked.port)))
                way, lighthouse = Way((asked.machine,), asked.run, host), here if kind == "host" else None
                self._join(near, here, way, awaits_welcome=False, lighthouse=lighthouse)
                return
            far = await self._open_patiently(asked)
        except BROKEN:
            near.close(is_orderly=False)
            return
        self._join(near, far, Way((asked.machine,), asked.run, host), awaits_welcome=True)

    async def _open_patiently(self, asked: StandIn) -> SecureEnd:
        """Open a connection, with retries: a link that was cut comes up again within a second or two.

        Without retries Gloo would fail: a worker whose first connection is reset gives up the group, and the other
        workers wait for it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            try:
                return await self._open(asked, self._kind_of(asked))
            except BROKEN:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _open(self, asked: StandIn, kind: Kind, origin: str = "") -> SecureEnd:
        settings = self._settings()
        try:
            far = await self._ways.reach(asked.machine, kind)
        except NoWayError:
            if settings.host in (settings.machine, asked.machine):
                raise
            far = await self._ways.reach(settings.host, kind)
            header = Open(run=asked.run, port=asked.port, to=asked.machine)
        else:
            header = Open(run=asked.run, port=asked.port, origin=origin)
        try:
            await far.send(header)
        except BROKEN:
            far.close(is_orderly=False)
            raise
        return far

    async def serve(self, machine: str, end: SecureEnd, asked: Open) -> None:
        """Carry a connection of another machine's gate to a worker here, or relay it to a third machine."""
        settings = self._settings()
        try:
            if asked.to not in ("", settings.machine):
                far = await self._relay(machine, asked)
                self._join(end, far, Way((asked.to, machine), asked.run), awaits_welcome=False)
            else:
                origin = asked.origin if machine == settings.host and asked.origin else machine
                near = PlainEnd(await self._connect(origin, asked))
                kind = self._exposed.of(asked.run).get(asked.port, "bulk")
                try:
                    watch_over(end.socket, kind)
                    await end.send_plain(WELCOME)
                except BaseException:
                    near.close(is_orderly=False)
                    raise
                host, lighthouse = (settings.machine, near) if kind == "host" else ("", None)
                way = Way((machine, origin), asked.run, host)
                self._join(near, end, way, awaits_welcome=False, lighthouse=lighthouse)
        except BROKEN:
            with suppress(*BROKEN):
                await end.send_plain(REFUSED)
            end.close()

    async def _connect(self, origin: str, asked: Open) -> socket.socket:
        """Connect to a worker here; NoWayError unless `origin` has a part in the run and the port is the run's."""
        settings = self._settings()
        if asked.port not in self._exposed.of(asked.run) or not in_run(settings, asked.run, origin):
            raise NoWayError(f"{origin} has no part in {asked.run}")
        is_of_host = self._exposed.of(asked.run)[asked.port] == "host"
        if is_of_host and not self._may_host():
            raise NoWayError("this machine is not the host, or not enough machines confirm that it is")
        connection = prepare(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        try:
            own = lighthouse_address(settings.block) if is_of_host else address_in(settings, settings.machine)
            await asyncio.get_running_loop().sock_connect(connection, (own, asked.port))
        except BaseException:
            connection.close()
            raise
        return connection

    async def _relay(self, machine: str, asked: Open) -> SecureEnd:
        """Open the second half of a relayed connection; only the host relays, between two machines of a run."""
        settings = self._settings()
        if settings.machine != settings.host or not all(
            in_run(settings, asked.run, one) for one in (machine, asked.to)
        ):
            raise NoWayError("this machine does not relay that")
        stand_in = StandIn(asked.to, asked.run, asked.port)
        return await self._open(stand_in, self._kind_of(stand_in), origin=machine)

    async def serve_http(self, end: SecureEnd) -> None:
        """Carry a connection to the host's service, after a PROXY protocol line with the client's address."""
        settings, loop = self._settings(), asyncio.get_running_loop()
        address, port = end.socket.getpeername()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.wait_for(loop.sock_connect(connection, settings.service), HANDSHAKE_S)
            await loop.sock_sendall(connection, f"PROXY TCP4 {address} 0.0.0.0 {port} 0\r\n".encode())
        except BROKEN:
            connection.close()
            end.close()
            return
        watch_over(end.socket, "bulk")
        if len(self._visitors) >= _MOST_VISITORS + _VISITORS_A_MEMBER * len(settings.members):
            oldest_of_busiest(self._visitors).finish(False)
        bridge = self._join(PlainEnd(connection), end, Way((), ""), awaits_welcome=False)
        if bridge in self._bridges:  # the client may have hung up already
            self._visitors[bridge] = address
            await self._close_when_idle(bridge)

    async def _close_when_idle(self, bridge: Bridge) -> None:
        """Close a connection to the host's service that carries nothing at first, or nothing more for a while."""
        await asyncio.sleep(HANDSHAKE_S)
        seen = 0
        while bridge in self._bridges:
            moved = bridge.sent_bytes + bridge.received_bytes
            if moved == seen:
                bridge.finish(False)
                return
            seen = moved
            await asyncio.sleep(IDLE_S)

    def _may_host(self) -> bool:
        """Whether this machine is the host, and enough machines confirm it."""
        settings = self._settings()
        return settings.host == settings.machine and (self._lease is None or self._lease.is_valid)

    def _must_wait(self) -> bool:
        """Whether answers of this machine's lighthouses wait for a confirmation of this host that is newer."""
        return self._lease is not None and not self._lease.is_fresh

    def _join(self, near: End, far: End, way: Way, *, awaits_welcome: bool, lighthouse: End | None = None) -> Bridge:
        bridge = Bridge(
            near,
            far,
            awaits_welcome=awaits_welcome,
            ended=self._forget,
            may_pass=self._may_host if lighthouse else lambda: True,
            held=lighthouse,
            must_wait=self._must_wait,
        )
        self._bridges[bridge] = way
        if self._may_stay(way):  # a machine may have left while the connection was being set up
            bridge.begin()
        else:
            bridge.finish(False)
        return bridge

    def _may_stay(self, way: Way) -> bool:
        settings = self._settings()
        is_of_host = way.host in ("", settings.host)
        return is_of_host and all(in_run(settings, way.run, machine) for machine in way.machines)

    def _forget(self, bridge: Bridge) -> None:
        del self._bridges[bridge]
        self._visitors.pop(bridge, None)

    # All connections at once

    def cut(self) -> None:
        """End connections whose machines are no members or have no part in the run any more."""
        for bridge, way in list(self._bridges.items()):
            if not self._may_stay(way):
                bridge.finish(False)

    def close(self) -> None:
        for bridge in list(self._bridges):
            bridge.finish(False)

    def cut_host(self) -> None:
        """End connections to this machine's lighthouses if it may not act as the host now."""
        for bridge, way in list(self._bridges.items()):
            if way.host and way.host == self._settings().machine and not self._may_host():
                bridge.finish(False)

    def sockets(self) -> Iterator[tuple[str, socket.socket]]:
        """The sockets of connections to other machines, each with its machine."""
        for bridge, way in self._bridges.items():
            for machine in set(way.machines[:1]) - {self._settings().machine}:
                yield machine, bridge.far.socket
