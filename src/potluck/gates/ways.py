"""Connections to another machine's gate: this gate dials, or asks the other gate by letter to dial."""

import asyncio
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from potluck.gates import secure
from potluck.gates.entrance import GREETING
from potluck.gates.identity import Identity
from potluck.gates.links import BROKEN, Link
from potluck.gates.messages import Answer, Body, CannotDial, ClusterMachine, DialMe, Kind
from potluck.gates.secure import SecureEnd
from potluck.gates.sockets import prepare, watch_over

_CONNECT_S = 1.0  # after a lost packet, dialling again is sooner than waiting for TCP to repeat it
_DIAL_S = 3.0
_AGAIN_S = 1.5  # enough for one lost packet
_ANSWER_S = 5.0
_NEXT_ADDRESS_S = 0.25


class NoWayError(OSError):
    """A machine cannot be reached now, or a connection to it is not allowed."""


class Ways:
    """Opens connections to other machines' gates, in the direction in which the link could be dialled."""

    def __init__(self, identity: Identity, links: Mapping[str, Link], post: Callable[[str, Body], bool]) -> None:
        self._identity = identity
        self._links = links
        self._post = post
        self.answering: Counter[str] = Counter()
        """How many connections each machine has asked this one to dial, of those that are not up yet."""
        self._tickets: dict[str, tuple[str, asyncio.Future[SecureEnd]]] = {}

    async def reach(self, machine: str, kind: Kind) -> SecureEnd:
        """A connection to a machine's own gate, without relay; NoWayError if neither side can dial the other."""
        link = self._links.get(machine)
        if link is None:
            raise NoWayError(f"{machine} is no member")
        try:
            return await self._along(link, kind)
        except BROKEN:
            if not link.is_up:
                raise
            await link.doubt()
            return await self._along(link, kind)

    async def _along(self, link: Link, kind: Kind) -> SecureEnd:
        await link.tried(_DIAL_S)
        if link.dialled:
            end = dial(self._identity, link.member, [link.address], kind)
            return await asyncio.wait_for(end, _AGAIN_S)  # short: the machine could be dialled a moment ago
        if link.is_up:
            return await self._ask_to_be_dialled(link.machine, kind)
        raise NoWayError(f"{link.machine} cannot be reached: {link.trouble}")

    async def answer(self, machine: str, asked: DialMe) -> SecureEnd:
        """Dial a machine that sent DialMe; if that fails, send CannotDial."""
        link = self._links[machine]
        try:
            end = await dial(self._identity, link.member, link.addresses, asked.kind)
        except BROKEN:
            self._post(machine, CannotDial(ticket=asked.ticket))
            raise
        await end.send(Answer(ticket=asked.ticket))
        return end

    def give_up(self, machine: str, ticket: str | None = None) -> None:
        """Fail the calls that wait for a machine to dial: the one with this ticket, or all because its link is down."""
        for one, (asked, waiting) in self._tickets.items():
            if asked == machine and ticket in (None, one) and not waiting.done():
                waiting.set_exception(NoWayError(f"{machine} does not dial back"))

    def redeem(self, machine: str, ticket: str, end: SecureEnd) -> bool:
        """Hand a connection to the task that waits for its ticket; False if no task waits for it any more."""
        asked, waiting = self._tickets.get(ticket, ("", None))
        if waiting is None or asked != machine or waiting.done():
            return False
        waiting.set_result(end)
        return True

    async def _ask_to_be_dialled(self, machine: str, kind: Kind) -> SecureEnd:
        ticket = secrets.token_hex(16)
        waiting: asyncio.Future[SecureEnd] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = (machine, waiting)
        try:
            self._post(machine, DialMe(ticket=ticket, kind=kind))
            end = await asyncio.wait_for(waiting, _ANSWER_S)
            watch_over(end.socket, kind)
            return end
        finally:
            del self._tickets[ticket]


async def dial(identity: Identity, member: ClusterMachine, addresses: Sequence[str], kind: Kind) -> SecureEnd:
    """Dial a machine's gate: try its addresses in order, each a moment after the one before; the first success wins."""
    pending: set[asyncio.Task[SecureEnd]] = set()
    last: BaseException = OSError("it has no address")
    try:
        for address in addresses:
            pending.add(asyncio.ensure_future(_dial_one(identity, member, address, kind)))
            done, pending = await asyncio.wait(pending, timeout=_NEXT_ADDRESS_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (error := task.exception()) is None:
                    return task.result()
                last = error
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if (error := task.exception()) is None:
                    return task.result()
                last = error
        raise last
    finally:
        for task in pending:
            task.cancel()
            task.add_done_callback(_close_late)


def _close_late(task: "asyncio.Task[SecureEnd]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _dial_one(identity: Identity, member: ClusterMachine, address: str, kind: Kind) -> SecureEnd:
    loop = asyncio.get_running_loop()
    connection = prepare(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        watch_over(connection, kind)
        await asyncio.wait_for(loop.sock_connect(connection, (address, member.port)), _CONNECT_S)
        end = SecureEnd(connection, secure.towards(identity, member.certificate), is_server=False)
        await loop.sock_sendall(connection, GREETING)
        await asyncio.wait_for(end.shake_hands(), _DIAL_S)
    except BaseException:
        connection.close()
        raise
    return end
