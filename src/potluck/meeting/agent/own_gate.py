"""This machine's gate as its agent uses it: sends it the members, and reads addresses and links for reports."""

import time

from potluck.gates.process import GateProcess
from potluck.meeting.access.gating import as_settings, link_reports, own_reach
from potluck.meeting.home import HostMembership
from potluck.meeting.wire import LinkReport, Orders, Reach

_REACH_EVERY_S = 5.0


class OwnGate:
    """A joined machine's gate. The host's machine uses the host's gate, of which the agent knows only the socket."""

    def __init__(self, gate: GateProcess | str, membership: HostMembership) -> None:
        self._gate = gate if isinstance(gate, GateProcess) else None
        self._membership = membership
        self.socket = str(gate.socket) if isinstance(gate, GateProcess) else gate
        self._reach: Reach | None = None
        self._reach_at = 0.0

    def follow(self, orders: Orders) -> None:
        """Send the gate its settings: which machines to let in and to dial."""
        if self._gate is not None:
            membership = self._membership
            self._gate.update(as_settings(orders.gate, membership.machine, first=membership.address))

    def reach(self) -> Reach | None:
        """Where other machines may dial this one, read again every few seconds since a laptop's addresses change."""
        if self._gate is not None and time.monotonic() - self._reach_at > _REACH_EVERY_S:
            self._reach_at = time.monotonic()
            self._reach = own_reach(self._gate.port)
        return self._reach

    def links(self) -> list[LinkReport]:
        """How this machine reaches the others; empty on the host's own machine."""
        return [] if self._gate is None else link_reports(self._gate)
