"""An agent's part in the host's succession: its vote, its copy of the host's state, and the host that waits here."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from potluck.core.errors import GateError, MeetingError
from potluck.gates.identity import load_or_make
from potluck.gates.owner_line import OwnerLine
from potluck.meeting.agent.disk_trouble import DiskTrouble
from potluck.meeting.agent.host_part import HostPart
from potluck.meeting.agent.messages import AgentMessage, AgentPlace, NoteHeard
from potluck.meeting.agent.mirroring import HasFolder, Mirror
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.candidacy import Candidacy
from potluck.meeting.succession.finding import Elsewhere, HostClaims, follow_host
from potluck.meeting.succession.notes import Follows, HostIs, Known, WhoIsHost, hear_notes, write_note
from potluck.meeting.succession.state_copy import KeptCopy
from potluck.meeting.wire import GateOrders


class AgentSuccession:
    """Used by the agent's loop. Other threads only post messages to it."""

    def __init__(
        self, place: AgentPlace, tell: Callable[[str], None], runs: Mapping[str, HasFolder], *, serves: bool = False
    ) -> None:
        """`serves`: if this machine is the host, its part belongs to this agent, not to the process that started it."""
        self._place = place
        self._machine = place.membership.machine
        self._tell = tell
        self._runs = runs
        self._line = OwnerLine(place.gate)
        self._ballots = BallotFile(place.home.succession_dir)
        self._kept = KeptCopy(place.home.succession_dir, load_or_make(place.home.identity_dir))
        self._candidacy = Candidacy(self._machine, self._ballots, self._line)
        self._mirror: Mirror | None = None
        self._host_part = HostPart(place.home, place.gate, tell, is_own=serves)
        self._is_over = threading.Event()
        self._disk = DiskTrouble(tell)
        self._claims = HostClaims()
        self._newer: Elsewhere | None = None
        self._told = ""
        """Which host this machine cannot follow, as it was printed last."""

    @property
    def _hosts_here(self) -> bool:
        """Whether the host's part runs on this machine, which then votes by itself."""
        return self._place.membership.host == self._machine

    @property
    def service(self) -> str:
        """The socket of the host's part that this agent has started; empty if it has not."""
        return self._host_part.service

    @property
    def promised(self) -> int:
        """The newest term for which this machine has promised its vote."""
        if self._hosts_here:  # the host's part votes
            self._ballots.look_again()
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
        self._host_part.dismiss(in_order=in_order)

    def give_up_vote(self) -> bool:
        """Vote for nobody until this machine joins again; False if that could not be noted on the disk.

        False also where this machine has voted for a host of whom it has not heard yet: its host of before may act no
        more, and would begin again if it were told that it needs one vote less.
        """
        ballot = self._ballots.ballot
        if not self.electorate or ballot.promised > ballot.term:
            return False
        try:
            self._candidacy.abstain()
        except OSError:
            return False
        return True

    # Messages

    def follow(self, orders: GateOrders, *, may_stand: bool = True) -> None:
        """Take new orders: note them on the disk, and keep a copy of the host's state if this machine is to."""
        if self._hosts_here:
            return
        with self._disk.survived("this machine votes for no host just now"):  # the host hears that, and goes on
            self._candidacy.follow(orders)
        with self._disk.survived("this machine cannot take the host's place just now"):
            if self._kept.block not in (None, orders.block):
                self._kept.forget()  # of another cluster: it must neither seem newer than this host's state nor be used
            if may_stand and self._machine in orders.succession.successors:
                self._keep_copy()
        if self._machine in orders.succession.successors:
            return
        if self._mirror is not None:
            self._stop_mirror()
            self._host_part.dismiss()

    def hear(self, heard: NoteHeard) -> None:
        """Take a note of another machine."""
        if self._hosts_here:
            self._ballots.look_again()
        orders, note = self._ballots.ballot.orders, heard.note
        if isinstance(note, HostIs | Follows):
            found = None if orders is None else self._claims.hear(heard.sender, note, orders)
            if found is not None and found.term > (0 if self._newer is None else self._newer.term):
                self._newer = found
            elif orders is not None:
                with suppress(GateError):
                    self._claims.ask(self._line, orders)
        elif self._hosts_here:
            return  # the host's part answers
        elif isinstance(note, WhoIsHost):
            if orders is not None:
                with suppress(GateError):
                    self._line.say(heard.sender, write_note(Follows(term=orders.succession.term, host=orders.host)))
        else:
            with suppress(GateError), self._disk.survived("this machine votes for no host just now"):
                self._candidacy.hear(heard.sender, heard.note, self._kept.rank)

    def look(self, *, may_stand: bool = True) -> Elsewhere | None:
        """The host to follow from now on, if that is another machine than before; it may be this one.

        `may_stand`: whether this machine may ask for votes; one that is leaving only gives them.
        """
        if not may_stand:
            self._stop_mirror()  # or the host would count on this machine
        if (newer := self._newer) is not None:
            self._newer = None
            return newer
        if (noted := self._noted_elsewhere()) is not None:
            return noted
        won: int | None = None
        with suppress(GateError), self._disk.survived("this machine cannot be the host just now"):
            if self._hosts_here:
                self._host_part.keep()
            elif may_stand:
                won = self._candidacy.look(self._kept.rank)
                if self._mirror is not None:
                    self._host_part.call()  # also where the process that waits has ended
        return None if won is None else Elsewhere(self._machine, won)

    def _noted_elsewhere(self) -> Elsewhere | None:
        """The host that this machine has noted, if its membership still names another one.

        Then only one of both files was written: the disk was full, or the power was cut.
        """
        if self._hosts_here:
            self._ballots.look_again()  # the host's part changes it
        orders, membership = self._ballots.ballot.orders, self._place.membership
        if orders is None or orders.host == membership.host or not orders.has(orders.host):
            return None
        return Elsewhere(orders.host, orders.succession.term)

    def become(self, elsewhere: Elsewhere) -> None:
        """Follow another host, or be the host: change this machine's membership."""
        with self._disk.survived(f"this machine cannot note that {elsewhere.host} is the host now"):
            self._become(elsewhere)

    def _become(self, elsewhere: Elsewhere) -> None:
        was_here = self._hosts_here
        self._stop_mirror()
        if was_here:
            self._ballots = BallotFile(self._place.home.succession_dir)  # the host's part has changed it
        address = "" if elsewhere.host == self._machine else _address_of(elsewhere.host, self._line)
        try:
            followed = follow_host(self._place.home, self._ballots, elsewhere, address)
        except MeetingError as error:  # a host of whom this machine does not know
            if self._told != (text := str(error)):
                self._told = text
                self._tell(text)
            return
        if followed is None:
            return
        self._place.membership = followed
        if elsewhere.host == self._machine:
            self._host_part.serve(elsewhere.term, {name: str(run.folder) for name, run in self._runs.items()})
        elif was_here:
            self._host_part.dismiss()
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
        self._host_part.call()

    def _stop_mirror(self) -> None:
        if self._mirror is not None:
            self._mirror.close()
            self._mirror = None


def _address_of(machine: str, line: OwnerLine) -> str:
    """Where the link to a machine leads, if it is up."""
    with suppress(GateError):
        return next((link.address for link in line.links().links if link.machine == machine), "")
    return ""
