"""Visits to all joined machines: the host relays questions to them, the doctor's and those that measure."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from potluck.core.errors import MeetingError
from potluck.doctor.examination import Examination, IntendedRun, MissingAnswer
from potluck.doctor.probing.asks import StationLostError
from potluck.doctor.probing.conducting import Seat, examine_stations
from potluck.meeting.client.client import HostClient
from potluck.meeting.home import HostMembership
from potluck.meeting.questions import Answer, Ask
from potluck.meeting.wire import ANSWER_S, Reach, VisitAnswer, VisitBegun, VisitQuestion


class JoinedStation:
    """A machine that has joined the same host as this one; the host relays questions to it."""

    def __init__(self, client: HostClient, visit: str, machine: str) -> None:
        self._client = client
        self._visit = visit
        self._machine = machine

    def ask(self, question: Ask, patience_s: float = ANSWER_S) -> Any:
        """The machine's answer, relayed by the host; raises StationLostError if there is none."""
        ask = msgspec.json.encode(question).decode()
        asked = VisitQuestion(machine=self._machine, ask=ask, patience_s=patience_s)
        try:
            told = self._client.ask_for(VisitAnswer, "POST", f"/visits/{self._visit}/questions", asked)
        except MeetingError as error:
            raise StationLostError(error.args[0]) from error
        if told.answer is None:
            raise StationLostError(told.error)
        return msgspec.json.decode(told.answer, type=Answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitUnderWay:
    """An open visit: the machines that can be asked, by name, and in `absent` why others cannot."""

    stations: dict[str, JoinedStation]
    addresses: dict[str, str]
    gates: dict[str, Reach]
    ways: dict[frozenset[str], str]
    devices: dict[str, list[str]]
    absent: dict[str, str]


@contextmanager
def visiting(
    membership: HostMembership, tell: Callable[[str], None], patience_s: float = ANSWER_S
) -> Iterator[VisitUnderWay]:
    """Open a visit to all present machines that train; `patience_s` is the longest timeout of its questions."""
    with ExitStack() as stack:
        client = stack.enter_context(HostClient.of(membership, with_small_packets=True))
        begun = client.ask_for(VisitBegun, "POST", "/visits")
        stack.callback(_end, client, begun.visit)
        if not begun.machines:
            raise MeetingError("no machine that trains is here", fix="join one with the line that potluck host prints")
        if begun.runs:
            tell(f"run {', '.join(begun.runs)} is on: what is measured now shares processors and links with it")
        clients = [
            HostClient.of(membership, timeout_s=patience_s + 10, with_small_packets=True) for _ in begun.machines
        ]
        yield VisitUnderWay(
            stations={
                machine: JoinedStation(stack.enter_context(each), begun.visit, machine)
                for machine, each in zip(begun.machines, clients, strict=True)
            },
            addresses=dict(begun.machines),
            gates=begun.gates,
            ways={frozenset(link["machines"]): link["way"] for link in begun.links},
            devices=begun.devices,
            absent=dict.fromkeys(begun.absent, f"{membership.host} does not hear it any more"),
        )


def examine_joined(
    membership: HostMembership, expected: tuple[str, ...] = (), *, with_torch: bool, tell: Callable[[str], None]
) -> Examination:
    """Facts of all machines that train, a dial between every ordered pair, and with torch one all-reduce."""
    with HostClient.of(membership) as client:
        install = client.ask("GET", "/status").get("install", "")
    plan = IntendedRun(host=membership.address, host_port=membership.port, expected=expected, install=install)
    with visiting(membership, tell) as visit:
        if len(visit.stations) == 1:
            tell(f"{next(iter(visit.stations))} is the only machine here: there is nothing between machines to see")
        seats = [
            Seat(station, visit.addresses[name], name=name, lan_address=next(iter(visit.gates[name].addresses), ""))
            for name, station in visit.stations.items()
        ]
        absent = {name: MissingAnswer(why=why) for name, why in visit.absent.items()}
        seen = examine_stations(seats, plan=plan, absent=absent, with_torch=with_torch, with_names=False)
        return msgspec.structs.replace(
            seen,
            addresses={name: gate.seen_at or (gate.addresses or [""])[0] for name, gate in visit.gates.items()},
            translated=frozenset(name for name, gate in visit.gates.items() if gate.is_translated),
            ports={name: gate.port for name, gate in visit.gates.items()},
            links=tuple(
                msgspec.structs.replace(link, way=visit.ways.get(frozenset((link.source, link.target)), ""))
                for link in seen.links
            ),
        )


def _end(client: HostClient, visit: str) -> None:
    with suppress(MeetingError):  # the host ends an unused visit by itself after a while
        client.ask("POST", f"/visits/{visit}/end")
