"""Examine all machines that have joined: the host carries the doctor's questions to them."""

from collections.abc import Callable
from contextlib import ExitStack, suppress

import msgspec

from potluck.core.errors import MeetingError
from potluck.doctor.case import Absence, Examination, Plan
from potluck.doctor.probing.asks import Answer, Ask, StationLostError
from potluck.doctor.probing.conducting import Seat, examine_stations
from potluck.meeting.client import HostClient
from potluck.meeting.home import Membership
from potluck.meeting.wire import ANSWER_S, VisitAnswer, VisitBegun, VisitQuestion


class JoinedStation:
    """A machine that has joined the same host as this one."""

    def __init__(self, client: HostClient, visit: str, machine: str) -> None:
        self._client = client
        self._visit = visit
        self._machine = machine

    def ask(self, question: Ask) -> Answer:
        """The machine's answer, by way of the host."""
        asked = VisitQuestion(machine=self._machine, ask=msgspec.json.encode(question).decode())
        try:
            told = self._client.ask_for(VisitAnswer, "POST", f"/visits/{self._visit}/questions", asked)
        except MeetingError as error:
            raise StationLostError(error.args[0]) from error
        if told.answer is None:
            raise StationLostError(told.error)
        answer: Answer = msgspec.json.decode(told.answer, type=Answer)
        return answer


def examine_joined(membership: Membership, *, with_torch: bool, tell: Callable[[str], None]) -> Examination:
    """Facts of all machines that train, every ordered pair, and one all-reduce."""
    plan = Plan(host=membership.address, host_port=membership.port)
    with ExitStack() as stack:
        client = stack.enter_context(HostClient.of(membership, with_small_packets=True))
        begun = client.ask_for(VisitBegun, "POST", "/visits")
        stack.callback(_end, client, begun.visit)
        if not begun.machines:
            raise MeetingError("no machine that trains is here", fix="join one with the line that potluck host prints")
        if len(begun.machines) == 1:
            tell(f"{next(iter(begun.machines))} is the only machine here: there is nothing between machines to see")
        if begun.runs:
            tell(f"run {', '.join(begun.runs)} is on: what is measured now shares processors and links with it")
        seats = [
            Seat(JoinedStation(stack.enter_context(_patient(membership)), begun.visit, machine), address, name=machine)
            for machine, address in begun.machines.items()
        ]
        silence = Absence(why=f"{membership.host} does not hear it any more")
        absent = dict.fromkeys(begun.absent, silence)
        return examine_stations(seats, plan=plan, absent=absent, with_torch=with_torch, with_names=False)


def _patient(membership: Membership) -> HostClient:
    return HostClient.of(membership, timeout_s=ANSWER_S + 10, with_small_packets=True)


def _end(client: HostClient, visit: str) -> None:
    with suppress(MeetingError):  # the host ends it by itself after a while
        client.ask("POST", f"/visits/{visit}/end")
