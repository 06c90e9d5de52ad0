"""A link: the connection for letters (control messages) between two gates, dialled by whichever side can."""

import asyncio
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from potluck.gates.correspondence import SILENCE_S, Correspondence
from potluck.gates.lease import HostLease
from potluck.gates.messages import ClusterMachine, Control, Letter, LinkState
from potluck.gates.secure import EndOfStreamError, SecureEnd

_PAUSES_S = (0.2, 0.5, 1.0)
_LOOK_S = 0.01
BROKEN = (OSError, ssl.SSLError, EndOfStreamError, msgspec.MsgspecError, asyncio.TimeoutError)


class Link:
    """The link to one machine: up while there is a Correspondence, else this gate dials again and again."""

    def __init__(
        self,
        member: ClusterMachine,
        *,
        is_first: Callable[[], bool],
        place: str,
        lease: HostLease,
        dial: Callable[[ClusterMachine], Awaitable[SecureEnd]],
        hear: Callable[["Link", Letter], None],
        changed: Callable[["Link"], None],
    ) -> None:
        self.member = member
        self.trouble = ""
        self._is_first = is_first
        self._own_place = place
        self._lease = lease
        self._dial = dial
        self._hear = hear
        self._changed = changed
        self._held: Correspondence | None = None
        self._has_tried = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._hurry = asyncio.Event()
        self._task = asyncio.ensure_future(self._keep())

    @property
    def machine(self) -> str:
        return self.member.machine

    @property
    def is_up(self) -> bool:
        return self._held is not None

    @property
    def dialled(self) -> bool:
        """Whether this machine dialled the link that is up, so that it can dial the other machine again."""
        return self._held is not None and self._held.dialled

    @property
    def address(self) -> str:
        """The other machine's address on the current connection; empty if the link is down."""
        return "" if self._held is None else self._held.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses at which to dial the other machine, first the current connection's if this machine dialled it."""
        known = (self._held.address,) if self._held is not None and self._held.dialled else ()
        return tuple(dict.fromkeys((*known, *self.member.addresses)))

    @property
    def is_here(self) -> bool:
        """Whether both machines share a loopback interface, as two containers or a test may."""
        return self._held is not None and self._held.place == self._own_place

    def confirmed_at(self, term: int) -> float:
        """When the last ping was sent that the other machine has confirmed for this term; -inf if none was."""
        confirmed_term, at = (0, -math.inf) if self._held is None else self._held.confirmed
        return at if confirmed_term == term else -math.inf

    def reached_at(self) -> float:
        """When the last ping was sent that the other machine has answered; -inf if none was."""
        return -math.inf if self._held is None else self._held.reached

    def state(self, *, is_relayed: bool) -> LinkState:
        held = self._held
        if held is None:
            return LinkState(
                machine=self.machine, way="relayed" if is_relayed else "down", trouble=self.trouble or "not tried yet"
            )
        return LinkState(
            machine=self.machine,
            way="here" if self.is_here else "direct",
            dialled=held.dialled,
            address=held.address,
            round_trip_s=held.round_trip_s,
            trouble=self.trouble,
        )

    def send(self, message: msgspec.Struct) -> bool:
        """Queue a message; False if the link is down."""
        if self._held is None:
            return False
        self._held.send(message)
        return True

    async def tried(self, at_most_s: float) -> None:
        """Wait until the link is up or dialling has failed, for `at_most_s` seconds."""
        if not self.is_up:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_tried.wait(), at_most_s)

    def hurry(self) -> None:
        """Dial anew at once if the link is down: another link has come up, so the network may be back."""
        if not self.is_up:
            self._hurry.set()

    async def accept(self, end: SecureEnd, control: Control) -> None:
        """Take a connection that the other side has dialled for letters, since the link is down on its side."""
        held = self._held
        if held is not None and held.dialled and self._is_first() and held.is_young:
            end.close()  # both dialled at once: the lower number's connection stays
            return
        await end.send(Control(place=self._own_place))
        await self._hold(end, dialled=False, place=control.place)

    async def doubt(self) -> None:
        """End a link that is up although dialling fails now, as after a firewall change: both sides dial anew."""
        doubted = self._held
        if doubted is not None:
            doubted.stop()
            while self._held is doubted:
                await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Stop dialling, and end the connection."""
        self._task.cancel()
        if self._held is not None:
            self._held.stop()

    async def _keep(self) -> None:
        failures = 0
        while True:
            await self._idle.wait()
            self._hurry.clear()
            try:
                if await self._greet(await self._dial_in_a_hurry()):
                    failures = 0
            except BROKEN as error:
                self.trouble = explain(error)
                self._has_tried.set()
                self._changed(self)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), _PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1

    async def _dial_in_a_hurry(self) -> SecureEnd:
        """Dial; if `hurry` is called meanwhile, dial anew: TCP repeats packets that a cut cable lost only late."""
        dialling = asyncio.ensure_future(self._dial(self.member))
        hurrying = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait((dialling, hurrying), return_when=asyncio.FIRST_COMPLETED)
            if dialling.done():
                return dialling.result()
        finally:
            hurrying.cancel()
            if not dialling.done():
                dialling.cancel()
        return await self._dial(self.member)

    async def _greet(self, end: SecureEnd) -> bool:
        """Hold a connection that this machine has dialled, until it ends; False if the other side refused it."""
        try:
            await end.send(Control(place=self._own_place))
            answer: Any = await asyncio.wait_for(end.receive(Control), SILENCE_S)
        except BROKEN as error:
            end.close()
            if not self.is_up:
                self.trouble = explain(error)
                self._has_tried.set()
                self._changed(self)
            return False
        await self._hold(end, dialled=True, place=answer.place)
        return True

    async def _hold(self, end: SecureEnd, *, dialled: bool, place: str) -> None:
        if dialled and not self._is_first() and self._held is not None and self._held.is_young:
            end.close()  # both dialled at once, and the other machine's connection came first
            return
        held = Correspondence(
            end,
            machine=self.machine,
            dialled=dialled,
            place=place,
            lease=self._lease,
            hear=lambda letter: self._hear(self, letter),
        )
        before, self._held = self._held, held
        if before is not None:
            before.stop()
        self.trouble = "" if dialled else self.trouble
        self._has_tried.set()
        self._idle.clear()
        try:
            self._changed(self)
            await held.hold()
        finally:
            if self._held is held:
                self._held = None
                self._has_tried.clear()
                self._idle.set()
                self._changed(self)


def explain(error: BaseException) -> str:
    """Why dialling failed, in a few words."""
    if isinstance(error, asyncio.TimeoutError):
        return "no answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return "another machine answers there"
    if isinstance(error, ssl.SSLError | EndOfStreamError | msgspec.MsgspecError):
        return "it does not let this machine in"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
