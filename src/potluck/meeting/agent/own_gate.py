"""This machine's gate as its agent uses it: sends it the members, and reads addresses and links for reports."""

import time
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from potluck.core.errors import GateError
from potluck.gates.messages import LinkState, Settings
from potluck.gates.owner_line import OwnerLine
from potluck.gates.process import GateProcess
from potluck.meeting.access.gating import as_settings, link_reports, own_reach
from potluck.meeting.home import HostMembership
from potluck.meeting.wire import GateOrders, LinkReport, Reach

_REACH_EVERY_S = 5.0


class OwnGate:
    """A joined machine's gate. On a machine that was started as the host, the host's process owns it: the agent uses
    the gate's socket, and leaves it alone while the host's process is the host.
    """

    def __init__(self, gate: GateProcess | str, membership: HostMembership, addresses: Sequence[str] = ()) -> None:
        """`addresses`: the only ones at which the gate listens; none: it listens at all of this machine."""
        self._gate = gate if isinstance(gate, GateProcess) else None
        self.membership = membership
        self.socket = str(gate.socket) if isinstance(gate, GateProcess) else gate
        self._line = OwnerLine(self.socket)
        self._addresses = list(addresses)
        self._reach: Reach | None = None
        self._looked_at = 0.0
        self._settings: Settings | None = None

    @property
    def _is_the_hosts(self) -> bool:
        return self._gate is None and self.membership.is_of_own_host and self._settings is None

    def follow(self, orders: GateOrders, *, service: str = "", promised: int = 0) -> None:
        """Send the gate its settings: which machines to let in and to dial, and who is the host."""
        if self._is_the_hosts and not service:
            return
        membership = self.membership
        first = "" if membership.is_of_own_host else membership.address
        self._apply(as_settings(orders, membership.machine, first=first, service=service, promised=promised))

    def _apply(self, settings: Settings) -> None:
        self._settings = settings
        if self._gate is not None:
            self._gate.update(settings)
        else:
            with suppress(GateError):  # it is being restarted: `reach` sends them again
                self._line.apply(settings)

    def keep(self, orders: GateOrders | None, *, service: str, promised: int) -> None:
        """Send what has changed without new orders: a promise, which a gate that starts again must not forget; or that
        the host's part of this machine has begun to serve.
        """
        settings = self._settings
        if settings is not None and (service, promised) != (settings.service, settings.promised):
            self._apply(msgspec.structs.replace(settings, service=service, promised=promised))
        elif settings is None and service and orders is not None:
            self.follow(orders, service=service, promised=promised)

    def reach(self) -> Reach | None:
        """Where other machines may dial this one, read again every few seconds since a laptop's addresses change."""
        if self._is_the_hosts:
            return None
        if time.monotonic() - self._looked_at > _REACH_EVERY_S:
            self._looked_at = time.monotonic()
            port = self._port()
            if port is not None:
                self._reach = Reach(addresses=self._addresses, port=port) if self._addresses else own_reach(port)
            if self._gate is None and self._settings is not None:
                with suppress(GateError):
                    self._line.apply(self._settings)
        return self._reach

    def _port(self) -> int | None:
        if self._gate is not None:
            return self._gate.port
        with suppress(GateError):
            return self._line.links().port
        return None

    def links(self) -> list[LinkReport]:
        """How this machine reaches the others; empty while the host's process of this machine reports it."""
        return [] if self._is_the_hosts else link_reports(self._link_states())

    def _link_states(self) -> tuple[LinkState, ...]:
        if self._gate is not None:
            return self._gate.links.links
        with suppress(GateError):
            return self._line.links().links
        return ()
