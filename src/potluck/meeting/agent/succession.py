"""An agent's part in the host's succession: its vote, its copy of the host's state, and the host that waits here."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from potluck.core.errors import GateError
from potluck.gates.identity import load_or_make
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.agent.messages import AgentMessage, AgentPlace, NoteHeard
from potluck.meeting.agent.mirroring import HasFolder, Mirror
from potluck.meeting.agent.standby import StandbyHost
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.candidacy import Candidacy
from potluck.meeting.succession.finding import Elsewhere, follow_host
from potluck.meeting.succession.notes import HostIs, Known, hear_notes
from potluck.meeting.succession.state_copy import KeptCopy
from potluck.meeting.wire import GateOrders

_RESTART_S = 2.0


class AgentSuccession:
    """Used by the agent's loop. Other threads only post messages to it."""

    def __init__(self, place: AgentPlace, tell: Callable[[str], None], runs: Mapping[str, HasFolder]) -> None:
        self._place = place
        self._machine = place.membership.machine
        self._tell = tell
        self._runs = runs
        self._line = OwnerLine(place.gate)
        self._ballots = BallotFile(place.home.succession_dir)
        self._kept = KeptCopy(place.home.succession_dir, load_or_make(place.home.identity_dir))
        self._candidacy = Candidacy(self._machine, self._ballots, self._line)
        self._mirror: Mirror | None = None
        self._standby: StandbyHost | None = None
        self._started_at = 0.0
        self._is_over = threading.Event()
        self._newer: Elsewhere | None = None

    @property
    def _hosts_here(self) -> bool:
        """Whether the host's part runs on this machine, which then votes by itself."""
        return self._place.membership.host == self._machine

    @property
    def service(self) -> str:
        """The socket of the host's part that this agent has started; empty if it has not."""
        return "" if self._standby is None else self._standby.service

    @property
    def promised(self) -> int:
        return self._ballots.ballot.promised

    @property
    def electorate(self) -> int:
        """The number of the newest electorate on this machine's disk."""
        orders = self._ballots.ballot.orders
        return 0 if orders is None or self._hosts_here else orders.succession.number

    @property
    def known_orders(self) -> GateOrders | None:
        """The gates' part of the newest orders, from this machine's disk."""
        return self._ballots.ballot.orders

    def start(self, post: Callable[[AgentMessage], None]) -> None:
        """Begin to hear notes of other machines."""

        def take(sender: str, note: Known) -> None:
            post(NoteHeard(sender, note))

        threading.Thread(
            target=hear_notes, args=(self._line, take, self._is_over), name="potluck-notes", daemon=True
        ).start()

    def close(self, *, in_order: bool) -> None:
        """Stop copying and voting; the host's part here pauses its runs first if this is `in_order`."""
        self._is_over.set()
        self._stop_mirror()
        self._dismiss_standby(in_order=in_order)

    # Messages

    def follow(self, orders: GateOrders) -> None:
        """Take new orders: note them on the disk, and keep a copy of the host's state if this machine is to."""
        if self._hosts_here:
            return
        with suppress(OSError):  # a full disk: the host hears that this machine does not know them yet
            self._candidacy.follow(orders)
        if self._kept.block not in (None, orders.block):
            self._kept.forget()  # of another cluster: it must neither seem newer than this host's state nor be restored
        if self._machine in orders.succession.successors:
            self._keep_copy()
        elif self._mirror is not None:
            self._stop_mirror()
            self._dismiss_standby()

    def hear(self, heard: NoteHeard) -> None:
        """Take a note of another machine."""
        if isinstance(heard.note, HostIs):
            known = max(self._ballots.ballot.term, 0 if self._newer is None else self._newer.term)
            if heard.note.term > known and heard.sender != self._machine:
                self._newer = Elsewhere(heard.sender, heard.note.term)
        elif not self._hosts_here:
            with suppress(GateError, OSError):
                self._candidacy.hear(heard.sender, heard.note, self._kept.rank)

    def look(self) -> Elsewhere | None:
        """The host to follow from now on, if that is another machine than before; it may be this one."""
        if (newer := self._newer) is not None:
            self._newer = None
            return newer
        if self._hosts_here:
            self._keep_serving()
            return None
        try:
            won = self._candidacy.look(self._kept.rank)
        except (GateError, OSError):
            return None
        return None if won is None else Elsewhere(self._machine, won)

    def become(self, elsewhere: Elsewhere) -> None:
        """Follow another host, or be the host: change this machine's membership."""
        was_here = self._hosts_here
        self._stop_mirror()
        if was_here:
            self._ballots = BallotFile(self._place.home.succession_dir)  # the host's part has changed it
        address = "" if elsewhere.host == self._machine else self._address_of(elsewhere.host)
        followed = follow_host(self._place.home, self._ballots, elsewhere, address)
        if followed is None:
            return
        self._place.membership = followed
        if elsewhere.host == self._machine:
            self._serve(elsewhere.term)
        elif was_here:
            self._dismiss_standby()
        self._candidacy = Candidacy(self._machine, self._ballots, self._line)

    def waiting_line(self) -> str:
        """Who could take the host's place, while it is silent."""
        orders = self._ballots.ballot.orders
        if orders is None or not orders.succession.electorates:
            return ""
        successors = orders.succession.successors
        if self._machine not in successors:
            return f"{' or '.join(successors)} may take its place" if successors else ""
        missing = [f"{name} ({why})" for name, why in sorted(self._candidacy.refusals.items())]
        if not missing:
            return "this machine may take its place, if enough others agree"
        return f"this machine cannot take its place without more votes: {', '.join(missing)}"

    # The copy, and the host's part

    def _keep_copy(self) -> None:
        if self._mirror is None:
            place = self._place
            self._mirror = Mirror(place.home, place.membership, self._kept, self._runs, self._tell)
            self._mirror.start()
        self._call_standby()

    def _call_standby(self) -> StandbyHost:
        """The host's part that waits here; started if there is none."""
        if self._standby is None:
            self._standby = StandbyHost(self._place.home, self._place.gate)
            self._standby.start()
        return self._standby

    def _dismiss_standby(self, *, in_order: bool = False) -> None:
        if self._standby is not None:
            self._standby.close(in_order=in_order and self._standby.is_serving)
            self._standby = None

    def _stop_mirror(self) -> None:
        if self._mirror is not None:
            self._mirror.close()
            self._mirror = None

    def _serve(self, term: int) -> None:
        self._started_at = time.monotonic()
        self._call_standby().serve(term, {name: str(run.folder) for name, run in self._runs.items()})

    def _keep_serving(self) -> None:
        """Start the host's part again if it has ended by itself."""
        standby = self._standby
        is_due = time.monotonic() - self._started_at > _RESTART_S
        if standby is not None and standby.is_serving and standby.has_ended and is_due:
            self._tell("the process that is the host on this machine has ended; a new one starts")
            self._started_at = time.monotonic()
            standby.start_again()

    def _address_of(self, machine: str) -> str:
        """Where the link to a machine leads, if it is up."""
        with suppress(GateError):
            return next((link.address for link in self._line.links().links if link.machine == machine), "")
        return ""
