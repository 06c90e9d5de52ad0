"""Answers the questions of visits, which the host relays to this machine: one thread per visit."""

import queue
import threading
from contextlib import closing

import msgspec

from potluck.core.environment import gate_variables
from potluck.core.errors import MeetingError
from potluck.doctor.probing.station import LocalStation
from potluck.gates.exposing import GateLine
from potluck.meeting.agent.measured import MeasuringStation
from potluck.meeting.client.client import HostClient, HostSilentError
from potluck.meeting.home import HostMembership
from potluck.meeting.questions import Ask, MeasureModel, SweepLinks, TellProfiles, TestMachine
from potluck.meeting.wire import Visit, VisitAnswer

_AGAIN_S = 0.5
_END_S = 2.0


class Visited:
    """All open visits of this machine. Not thread-safe."""

    def __init__(self, membership: HostMembership, gate: str, threads: int | None = None) -> None:
        self._membership = membership
        self._gate = gate
        self._threads = threads
        self._visits: dict[str, _Attendance] = {}

    def follow(self, visits: list[Visit]) -> None:
        """Answer the questions of these visits, and end every visit that is not among them."""
        for over in self._visits.keys() - {visit.visit for visit in visits}:
            self._visits.pop(over).end()
        for visit in visits:
            if visit.visit not in self._visits:
                self._visits[visit.visit] = _Attendance(self._membership, visit.visit, self._gate, self._threads)
            self._visits[visit.visit].hear(visit)

    def close(self) -> None:
        """End all visits; waits at most _END_S for each."""
        attended = list(self._visits.values())
        self.follow([])
        for one in attended:
            one.join(_END_S)


class _Attendance:
    """The thread of one visit. Ports and the torch process that the visit has opened stay until the visit ends."""

    def __init__(self, membership: HostMembership, visit: str, gate: str, threads: int | None) -> None:
        self._membership = membership
        self._gate = gate
        self._threads = threads
        self._visit = visit
        self._heard = 0
        self._questions: queue.SimpleQueue[Visit | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="potluck-doctor", daemon=True)
        self._thread.start()

    def hear(self, visit: Visit) -> None:
        if visit.number > self._heard:
            self._heard = visit.number
            self._questions.put(visit)

    def end(self) -> None:
        self._over.set()
        self._questions.put(None)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _attend(self) -> None:
        home = HostClient.of(self._membership, with_small_packets=True)
        machine, line = self._membership.machine, GateLine(self._gate, self._visit)
        measuring = MeasuringStation(machine, self._gate, self._visit, self._threads, self._over)

        def expose(port: int) -> None:
            line.expose({port: "bulk"})

        local = LocalStation(
            machine,
            expose=expose,
            variables=gate_variables(self._gate, self._visit, ""),
        )
        with closing(line), closing(local) as station, home as client:
            while (visit := self._questions.get()) is not None:
                self._tell(client, _answer(station, measuring, visit))

    def _tell(self, client: HostClient, answer: VisitAnswer) -> None:
        while not self._over.is_set():
            try:
                client.ask("POST", f"/visits/{self._visit}/answers", answer)
            except HostSilentError:
                self._over.wait(_AGAIN_S)
                continue
            except MeetingError:  # the host does not want the answer any more
                pass
            return


def _answer(station: LocalStation, measuring: MeasuringStation, visit: Visit) -> VisitAnswer:
    try:
        question = msgspec.json.decode(visit.ask, type=Ask)
        is_to_measure = isinstance(question, MeasureModel | TellProfiles | SweepLinks | TestMachine)
        answer = measuring.ask(question) if is_to_measure else station.ask(question)
    except MeetingError as error:
        return VisitAnswer(number=visit.number, error=str(error.args[0])[:300])
    except Exception as error:  # noqa: BLE001  whoever asked gets the error as the answer
        return VisitAnswer(number=visit.number, error=f"{type(error).__name__}: {error}"[:300])
    return VisitAnswer(number=visit.number, answer=msgspec.json.encode(answer).decode())
