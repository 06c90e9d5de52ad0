"""A machine's gate: its members and links, its stand-ins, and the letters between it and other gates."""

import asyncio
import hashlib
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from potluck.gates import secure
from potluck.gates.announcing_ports import PortAnnouncements
from potluck.gates.entrance import HANDSHAKE_S, Entrance
from potluck.gates.handing_out import HandingOut
from potluck.gates.hurrying import Hurrying
from potluck.gates.identity import Identity
from potluck.gates.lease import HostLease
from potluck.gates.links import BROKEN, Link
from potluck.gates.member_certificates import MemberCertificates
from potluck.gates.messages import (
    Answer,
    Body,
    CannotDial,
    ClusterMachine,
    Control,
    DialMe,
    Header,
    Letter,
    Links,
    Note,
    Open,
    Ports,
    Settings,
    Standing,
    Undelivered,
)
from potluck.gates.notes import ReceivedNotes
from potluck.gates.ports import StandIn, address_in
from potluck.gates.secure import SecureEnd
from potluck.gates.sockets import watch_over
from potluck.gates.streams import Streams
from potluck.gates.ways import Ways, dial

_AGAIN_S = 0.05
_MOST_ANSWERS = 64  # connections that one machine may ask this one to dial at a time


class Gate:
    """Everything that a gate's process holds. The gate accepts no connection before the first `update`."""

    def __init__(self, identity: Identity, listeners: Sequence[socket.socket], changed: Callable[[], None]) -> None:
        self._identity = identity
        self._changed = changed
        self._settings = Settings(machine="", host="", block="", members=())
        self._place = own_place()
        self._certificates = MemberCertificates(identity)
        anybody = secure.anybody(identity)
        self._links: dict[str, Link] = {}
        self.lease = HostLease(lambda: self._settings, self._links)
        self.notes = ReceivedNotes()
        self._hurrying = Hurrying(self._links)
        self._ways = Ways(identity, self._links, self._post)
        self.ports = PortAnnouncements(self._links, lambda: self._settings, self._post, self._listen)
        self.streams = Streams(lambda: self._settings, self.ports.exposed, self.ports.kind_of, self._ways, self.lease)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_settings = asyncio.Event()
        self._entrance = Entrance(
            listeners,
            members=lambda: self._certificates.context,
            service=lambda: anybody if self._settings.service else None,
            let_in=self._let_in,
            serve=self.streams.serve_http,
            hand_out=HandingOut(lambda: self._settings.handed_out).read,
        )

    @property
    def port(self) -> int:
        """This machine's one port."""
        return self._entrance.port

    async def listen(self) -> None:
        """Serve until cancelled; connections that arrive before the owner has sent settings wait."""
        try:
            await self._has_settings.wait()
            await self._entrance.listen()
        finally:
            self.ports.close()
            self._hurrying.close()
            for link in self._links.values():
                link.close()
            self.streams.close()
            for task in self._tasks:
                task.cancel()

    # Settings from the owner, and the state of links for the owner

    def update(self, settings: Settings) -> None:
        """Apply new settings; machines and runs that they do not name any more are cut off at once."""
        if settings == self._settings:
            return
        before, self._settings = self._settings, settings
        self._has_settings.set()
        others = {member.machine: member for member in settings.members if member.machine != settings.machine}
        if before.members != settings.members:
            self._certificates.take(others.values())
        for name, link in list(self._links.items()):
            known = others.get(name)
            if known is None or known.certificate != link.member.certificate:
                link.close()
                del self._links[name]
                self.ports.forget(name)
            else:
                link.member = known
        self.streams.cut()
        new = others.keys() - self._links.keys()
        for name in new:
            self._links[name] = Link(
                others[name],
                is_first=partial(self._is_first, name),
                place=self._place,
                lease=self.lease,
                dial=self._dial_for_letters,
                hear=self._hear,
                changed=self._link_changed,
            )
        self.ports.settle()
        is_same = (before.runs, before.host, before.machine) == (settings.runs, settings.host, settings.machine)
        for name in new if is_same else others:
            self.ports.announce(name)

    def _is_first(self, machine: str) -> bool:
        """Whether this machine has the lower number: if both dial at the same moment, its connection stays."""
        numbers = {member.machine: member.number for member in self._settings.members}
        return numbers.get(self._settings.machine, 0) < numbers.get(machine, 0)

    def links(self) -> Links:
        """The state of the links to all other machines."""
        host = self._links.get(self._settings.host)
        has_relay = host is not None and host.is_up
        return Links(
            links=tuple(
                link.state(is_relayed=has_relay and link is not host) for _, link in sorted(self._links.items())
            )
        )

    @property
    def own_address(self) -> str:
        """This machine's loopback address, the same on every machine."""
        return self.address_of(self._settings.machine)

    def address_of(self, machine: str) -> str:
        """A member's loopback address, the same on every machine; empty if the machine is no member."""
        return address_in(self._settings, machine)

    # Stand-ins

    def _listen(self, one: StandIn, listener: socket.socket) -> Callable[[], None]:
        task = self._spawn(self._accept(one, listener))

        def end() -> None:
            task.cancel()

        return end

    async def _accept(self, one: StandIn, listener: socket.socket) -> None:
        listener.setblocking(False)
        with listener:
            while True:
                try:
                    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError:  # no file descriptors left for now
                    await asyncio.sleep(_AGAIN_S)
                    continue
                self._spawn(self.streams.carry(one, connection))

    # Letters

    def _post(self, machine: str, body: Body) -> bool:
        """Send a letter over the link to that machine, else through the host; False if both links are down."""
        letter = Letter(sender=self._settings.machine, to=machine, body=body)
        ways = (self._links.get(machine), self._links.get(self._settings.host))
        return any(link is not None and link.send(letter) for link in ways)

    def say(self, machine: str, text: str) -> bool:
        """Send a note to another machine, over the link between the two only; False if that is down."""
        link = self._links.get(machine)
        letter = Letter(sender=self._settings.machine, to=machine, body=Note(text=text))
        return link is not None and link.send(letter)

    def _hear(self, link: Link, letter: Letter) -> None:
        if letter.to != self._settings.machine:
            self._pass_on(link, letter)
        elif link.machine == letter.sender or (
            link.machine == self._settings.host and not isinstance(letter.body, Note)
        ):
            self._read(letter.sender, letter.body)

    def _pass_on(self, link: Link, letter: Letter) -> None:
        """Relay a letter, on the host only, and only if its sender is the machine that this link leads to."""
        if self._settings.machine != self._settings.host or letter.sender != link.machine:
            return
        towards = self._links.get(letter.to)
        if towards is None or not towards.send(letter):
            link.send(Letter(sender=letter.to, to=link.machine, body=Undelivered(machine=letter.to)))

    def _read(self, sender: str, body: Body) -> None:
        if sender not in self._links:
            return
        match body:
            case Ports() | Standing() | Undelivered():
                self.ports.take(sender, body)
            case DialMe() if self._ways.answering[sender] < _MOST_ANSWERS:
                self._spawn(self._answer(sender, body))
            case CannotDial(ticket=ticket):
                self._ways.give_up(sender, ticket)
            case Note(text=text):
                self.notes.add(sender, text)

    def _link_changed(self, link: Link) -> None:
        if link.is_up:
            self.ports.link_is_up(link)
            self._hurrying.link_is_up()
        else:
            self._ways.give_up(link.machine)
        self._changed()

    async def _dial_for_letters(self, member: ClusterMachine) -> SecureEnd:
        return await dial(self._identity, member, self._links[member.machine].addresses, "control")

    # Connections from other gates

    async def _let_in(self, end: SecureEnd) -> None:
        member = self._certificates.whose(end.certificate)
        if member is None:  # the machine has just left
            end.close()
            return
        header: Any = await asyncio.wait_for(end.receive(Header), HANDSHAKE_S)
        if member.machine not in self._links:  # the machine has left since
            end.close()
            return
        match header:
            case Control():
                watch_over(end.socket, "control")
                await self._links[member.machine].accept(end, header)
            case Open():
                await self.streams.serve(member.machine, end, header)
            case Answer(ticket=ticket) if self._ways.redeem(member.machine, ticket, end):
                pass
            case _:
                end.close()

    async def _answer(self, machine: str, asked: DialMe) -> None:
        self._ways.answering[machine] += 1
        try:
            with suppress(*BROKEN):
                end = await self._ways.answer(machine, asked)
                header: Any = await asyncio.wait_for(end.receive(Open), HANDSHAKE_S)
                await self.streams.serve(machine, end, header)
        finally:
            self._ways.answering[machine] -= 1

    def _spawn(self, part: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.ensure_future(part)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def own_place() -> str:
    """An id of this loopback interface: machines with the same id dial each other without stand-ins."""
    parts = [Path("/proc/sys/kernel/random/boot_id").read_text(), str(Path("/proc/self/ns/net").readlink())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
