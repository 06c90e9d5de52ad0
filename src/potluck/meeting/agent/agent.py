"""A joined machine's agent: one loop that receives orders, and has workers and other threads carry them out."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from potluck.core.environment import read_environment
from potluck.core.errors import MeetingError
from potluck.gates.process import GateProcess
from potluck.machine.software import find_devices, name_cards
from potluck.meeting.agent.answering import Visited
from potluck.meeting.agent.host_line import HostLine
from potluck.meeting.agent.local_run import LocalRun
from potluck.meeting.agent.messages import (
    AgentMessage,
    AgentPlace,
    Delivered,
    Delivery,
    DevicesCounted,
    HostHeard,
    HostRefuses,
    HostSilent,
    LeaveRequest,
    NoteHeard,
    RunPrepared,
    Trouble,
)
from potluck.meeting.agent.own_gate import OwnGate
from potluck.meeting.agent.shared_data import SharedData
from potluck.meeting.agent.state_line import files_line, over_line, run_line, silence_line, start_line
from potluck.meeting.agent.succession import AgentSuccession
from potluck.meeting.agent.terminal import AgentTerminal
from potluck.meeting.client.client import HostClient
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.transfer.run_tail import read_pace
from potluck.meeting.wire import Assignment, GateOrders, Orders, Report
from potluck.meeting.workers.fork_client import ForkClient, ForkServerEnded
from potluck.meeting.workers.messages import ToForkServer, WorkerNews

_LOOK_S = 0.2
_LAST_DELIVERY_S = 2.0
_GOODBYE_S = 2.0
LEAVE_S = 9.0  # for the current step, before workers are killed: Ctrl-C has to end a command within 15 s


class Agent:
    """Runs until `leave` is called or the host asks it to leave. Only the thread that calls `run` touches its state."""

    def __init__(
        self,
        home: Home,
        membership: HostMembership,
        *,
        gate: GateProcess | str,
        devices: list[str] | None = None,
        threads: int | None = None,
        serves: bool = False,
        addresses: Sequence[str] = (),
        tell: Callable[[str], None],
        show: Callable[[str], None],
    ) -> None:
        self._gate = OwnGate(gate, membership, addresses)
        self._place = AgentPlace(
            home=home,
            membership=membership,
            gate=self._gate.socket,
            threads=threads,
            data_dir=read_environment().data_dir.absolute(),
        )
        self._terminal = AgentTerminal(tell, show)
        self._inbox: queue.SimpleQueue[AgentMessage] = queue.SimpleQueue()
        self._fork_client = ForkClient(self._inbox.put)
        self._runs: dict[str, LocalRun] = {}
        self._succession = AgentSuccession(self._place, self._terminal.tell, self._runs, serves=serves)
        self._host_line = self._line_to_host()
        self._visited = Visited(membership, self._gate.socket, threads)
        self._counted = DevicesCounted(devices, {})
        self._orders: Orders | None = None
        self._leaving: LeaveRequest | None = None
        self._refusal: MeetingError | None = None
        self._silent_since: float | None = None
        self.was_sent_away = False
        """Another machine of the cluster made this one leave: the host does not know this machine any more."""

    def leave(self, step_s: float = LEAVE_S, *, in_silence: bool = False) -> None:
        """Stop after the step, send all files and a goodbye to the host. Safe in a signal handler and in any thread."""
        self._inbox.put(LeaveRequest(step_s=step_s, in_silence=in_silence))

    def run(self) -> None:
        """Work until this machine has left; raises the error if the host has refused this machine."""
        self._fork_client.start()
        if (known := self._succession.known_orders) is not None:
            self._follow_gate(known)  # the host may be gone: other machines say who is the host now
        self._host_line.start()
        self._succession.start(self._inbox.put)
        devices = self._counted.devices
        if devices is None or any(device != "cpu" for device in devices):
            threading.Thread(target=self._count_devices, name="potluck-count-devices", daemon=True).start()
        try:
            while self._leaving is None:
                self._turn()
            self._wind_down(self._leaving)
        finally:
            self._host_line.hang_up()
            self._succession.close(in_order=self._leaving is not None and not self._leaving.in_silence)
            self._visited.close()
            for data in self._place.data.values():
                data.close()
            self._fork_client.close(0.0)  # the workers had their time in _wind_down
            self._host_line.close(_LAST_DELIVERY_S)
        if self._refusal is not None:
            raise self._refusal
        if not self._leaving.in_silence:
            self._say_goodbye()

    # Incoming messages

    def _turn(self) -> None:
        """Handle queued messages, waiting a moment for the first; follow the orders; queue a report to the host."""
        messages = list(_messages(self._inbox))
        for message in messages:
            self._take(message)
        if (elsewhere := self._succession.look(may_stand=self._leaving is None)) is not None:
            self._change_host(elsewhere)
        succession = self._succession
        self._gate.keep(succession.known_orders, service=succession.service, promised=succession.promised)
        if messages and self._orders is not None:
            self._follow(self._orders)
        for run in self._runs.values():
            run.advance()
        files = tuple(run.files() for run in self._runs.values())
        self._host_line.deliver(Delivery(self._report(), files))
        self._terminal.show(self._status_line())

    def _take(self, message: AgentMessage) -> None:
        match message:
            case Orders():
                self._follow_gate(message.gate)  # first: the gate must know the machines that workers will dial
                self._succession.follow(message.gate, may_stand=self._leaving is None)
                self._visited.follow(message.visits)  # at once: an examination consists of many short questions
                self._orders = message
            case HostHeard():
                if self._silent_since is not None:
                    self._silent_since = None
                    self._host_line.report_again()
            case HostSilent():
                self._silent_since = self._silent_since or time.monotonic()
            case HostRefuses(error):
                self._refusal = error
                self._leaving = self._leaving or LeaveRequest(step_s=LEAVE_S)
            case LeaveRequest():
                self._leaving = message
                if message.in_silence:
                    self._host_line.hang_up()
            case DevicesCounted():
                self._counted = message
            case NoteHeard():
                self._succession.hear(message)
            case Trouble(text):
                self._terminal.tell_trouble(text)
            case _:
                self._take_of_runs(message)

    def _take_of_runs(self, message: ForkServerEnded | WorkerNews | RunPrepared | Delivered) -> None:
        match message:
            case ForkServerEnded():
                self._replace_fork_server()
            case WorkerNews():
                if message.run in self._runs:
                    self._runs[message.run].hear(message)
            case RunPrepared():
                run = self._runs.get(message.run)
                if run is not None and run.assignment.start_number == message.start_number:
                    run.hear_prepared(message)
            case Delivered(files):
                for run in self._runs.values():
                    run.hear_delivered(files)

    def _replace_fork_server(self) -> None:
        for run in self._runs.values():
            run.lose_workers()
        if self._leaving is None:
            self._terminal.tell("the process that holds this machine's workers has ended; a new one starts")
            self._fork_client.close(0.0)
            self._fork_client = ForkClient(self._inbox.put)
            self._fork_client.start()

    # The host

    def _line_to_host(self) -> HostLine:
        return HostLine(self._place.membership, self._inbox.put, lambda: self._succession.electorate)

    def _follow_gate(self, orders: GateOrders) -> None:
        self._gate.follow(orders, service=self._succession.service, promised=self._succession.promised)

    def _change_host(self, elsewhere: Elsewhere) -> None:
        """Work for another host from now on; runs go on as they are."""
        self._succession.become(elsewhere)
        membership = self._place.membership
        if membership.host != elsewhere.host:
            return  # a machine that this one does not know
        self._gate.membership = membership
        if (orders := self._succession.known_orders) is not None:
            self._follow_gate(orders)
        self._host_line.hang_up()
        self._host_line = self._line_to_host()
        self._host_line.start()
        self._visited.close()
        self._visited = Visited(membership, self._gate.socket, self._place.threads)
        self._silent_since = None
        is_this = membership.is_of_own_host
        self._terminal.tell(f"{'this machine' if is_this else membership.host} is the host now (term {elsewhere.term})")
        if is_this:
            self._terminal.tell(f"the line to paste on other machines: cat {self._place.home.invitation_file}")

    # Following orders

    def _follow(self, orders: Orders) -> None:
        if orders.leave and self._leaving is None:
            self._terminal.tell(f"{self._place.membership.host} asks this machine to leave")
            self.was_sent_away = orders.is_sent_away
            self._leaving = LeaveRequest(step_s=LEAVE_S)
        self._terminal.tell_troubles_of_host(orders.trouble)
        self._follow_data(orders)
        wanted = {assignment.run: assignment for assignment in orders.assignments}
        for name, assignment in wanted.items():
            if self._is_of_earlier_start(assignment):
                self._runs[name].stop()  # the new start begins when these workers have ended
                continue
            if name not in self._runs:
                if self._leaving is not None:
                    continue
                self._runs[name] = self._take_on(assignment)
            self._runs[name].follow(assignment, orders.gate)
        for name in self._runs.keys() - wanted.keys():
            # All files of the run are at the host, or the host does not know the run any more.
            over = self._runs.pop(name)
            over.stop(is_over=True)
            self._terminal.tell(over_line(name, read_pace(over.folder), is_plain=over.is_plain))

    def _follow_data(self, orders: Orders) -> None:
        """Share what runs need; a machine that the gates do not know yet begins when they do."""
        is_known = orders.gate.has(self._place.membership.machine)
        wanted = {order.run_id: order for order in orders.data} if is_known else {}
        for run_id, order in wanted.items():
            if run_id not in self._place.data:
                self._place.data[run_id] = SharedData(self._place, order, orders.gate)
            self._place.data[run_id].follow(order, orders.gate)
        # A worker here may go on for a moment after the run has ended elsewhere.
        at_work = {run.assignment.run_id for run in self._runs.values() if run.is_training}
        for run_id in self._place.data.keys() - {order.run_id for order in orders.data} - at_work:
            self._place.data.pop(run_id).close()

    def _is_of_earlier_start(self, assignment: Assignment) -> bool:
        """Whether workers here still train for an earlier start of the run; forgets that start once they have ended."""
        run = self._runs.get(assignment.run)
        if run is None or run.assignment.start_number == assignment.start_number:
            return False
        if not run.is_training:
            del self._runs[assignment.run]
        return assignment.run in self._runs

    def _take_on(self, assignment: Assignment) -> LocalRun:
        what = assignment.task.entry or (assignment.task.settings or {}).get("model", "")
        self._terminal.tell(f"run {assignment.run}: {what}, started by {assignment.started_by}")
        if assignment.task.settings is None:
            bundle = (assignment.task.bundle or "none")[:12]
            self._terminal.tell(f"this machine runs code from {assignment.started_by}: bundle {bundle}")
        return LocalRun(assignment, self._place, send=self._send, post=self._inbox.put, tell=self._terminal.tell)

    def _send(self, message: ToForkServer) -> None:
        self._fork_client.send(message)

    def _wind_down(self, leaving: LeaveRequest) -> None:
        """Let the workers finish their step, and wait until their files are at the host."""
        for run in self._runs.values():
            run.stop(is_leaving=True)
        left_at = time.monotonic()
        while any(run.is_training for run in self._runs.values()) and time.monotonic() < left_at + leaving.step_s:
            self._turn()
        self._turn()
        if self._silent_since is None and not leaving.in_silence:
            deadline = left_at + leaving.step_s + _LAST_DELIVERY_S
            while self._refusal is None and time.monotonic() < deadline:
                if all(run.is_home for run in self._runs.values()):
                    break
                self._turn()

    # Reports and status

    def _report(self, *, is_leaving: bool = False, gives_up_vote: bool = False) -> Report:
        return Report(
            devices=self._counted.devices,
            cards=self._counted.cards,
            reach=self._gate.reach(),
            links=self._gate.links(),
            workers=[report for run in self._runs.values() for report in run.reports()],
            data=[report for data in self._place.data.values() for report in data.report()],
            is_leaving=is_leaving,
            gives_up_vote=gives_up_vote,
        )

    def _status_line(self) -> str:
        membership = self._place.membership
        if self._silent_since is not None:
            silence = silence_line(membership.host, time.monotonic() - self._silent_since)
            return "; ".join(filter(None, (silence, self._succession.waiting_line())))
        for run in self._runs.values():
            if run.is_training:
                line = run_line(run.name, read_pace(run.folder), is_plain=run.is_plain)
                data = self._place.data.get(run.assignment.run_id)
                return "; ".join(filter(None, (line, "" if data is None else data.line())))
        for run in self._runs.values():
            return files_line(run.name, membership.host) if run.has_ended else start_line(run.name)
        return f"joined {membership.host} as {membership.machine}; waiting for work"

    def _say_goodbye(self) -> None:
        # A vote that nobody is told of would be missed for good where the host is gone.
        gives_up_vote = self._silent_since is None and self._succession.give_up_vote()
        report = self._report(is_leaving=True, gives_up_vote=gives_up_vote)
        try:
            with HostClient.of(self._place.membership, timeout_s=_GOODBYE_S) as client:
                client.ask("POST", "/report", report)
        except MeetingError as error:
            self._terminal.tell(f"left without a goodbye: {error.args[0]}")

    def _count_devices(self) -> None:
        given = self._counted.devices
        devices, cards = find_devices() if given is None else (given, name_cards())
        self._inbox.put(DevicesCounted(devices, cards))


def _messages(inbox: "queue.SimpleQueue[AgentMessage]") -> Iterator[AgentMessage]:
    """All queued messages; waits up to _LOOK_S for the first."""
    try:
        yield inbox.get(timeout=_LOOK_S)
        while True:
            yield inbox.get_nowait()
    except queue.Empty:
        return
