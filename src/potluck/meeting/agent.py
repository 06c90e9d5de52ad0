"""A joined machine's agent: hears what to do, lets its workers do it, and sends home what they write."""

import queue
import threading
import time
from collections.abc import Callable

from potluck.core.environment import read_environment
from potluck.core.errors import MeetingError
from potluck.gates.process import GateProcess
from potluck.machine.software import find_devices
from potluck.meeting.client import TIMEOUT_S, HostClient, HostSilentError, NotAdmittedError
from potluck.meeting.crew_line import STEP_S, CrewLine
from potluck.meeting.gating import as_settings, link_reports, own_reach, without_times
from potluck.meeting.home import Home, Membership
from potluck.meeting.local_run import LocalRun
from potluck.meeting.news import read_pace
from potluck.meeting.visited import Visited
from potluck.meeting.wire import POLL_S, Assignment, Orders, PollRequest, Reach, Report

_LOOK_S = 0.1
_DELIVER_EVERY_S = 0.5
_SILENCE_S = 1.0
_LAST_DELIVERY_S = 15.0
_TROUBLE_S = 10.0
_REACH_EVERY_S = 5.0


class Agent:
    """Runs until it is told to leave, here or by the host."""

    def __init__(
        self,
        home: Home,
        membership: Membership,
        *,
        gate: GateProcess | str,
        devices: list[str] | None = None,
        threads: int | None = None,
        tell: Callable[[str], None],
        show: Callable[[str], None],
    ) -> None:
        self._home = home
        self._membership = membership
        self._gate = gate if isinstance(gate, GateProcess) else None
        """This machine's own gate; the host's machine has the host's, and only its socket is known here."""
        self._gate_socket = str(gate.socket) if isinstance(gate, GateProcess) else gate
        self._devices = devices
        self._threads = threads
        self._tell = tell
        self._show = show
        self._crew = CrewLine()
        self._visited = Visited(membership, self._gate_socket, threads)
        self._runs: dict[str, LocalRun] = {}
        self._orders: queue.SimpleQueue[Orders] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._patience_s = STEP_S
        self._done = threading.Event()
        self._refusal: MeetingError | None = None
        self._silent_since: float | None = None
        self._reported: Report | None = None
        self._reach: Reach | None = None
        self._reach_at = 0.0
        self._lock = threading.Lock()

    def leave(self, patience_s: float = STEP_S) -> None:
        """Stop after the step, send everything home, say goodbye. Safe in a signal handler."""
        self._patience_s = patience_s
        self._leaving.set()

    def run(self) -> None:
        """Work until leaving is done; raises what the host refused."""
        delivering, *others = (
            threading.Thread(target=target, name=f"potluck-{target.__name__.strip('_')}", daemon=True)
            for target in (self._deliver, self._listen, self._count_devices)
        )
        self._crew.start()
        for thread in (delivering, *others):
            thread.start()
        try:
            while not self._leaving.is_set():
                self._turn()
                time.sleep(_LOOK_S)
            self._wind_down()
        finally:
            self._done.set()
            self._visited.close()
            self._crew.close(self._patience_s)
            delivering.join(TIMEOUT_S)  # the others only wait for answers that nobody needs any more
        self._say_goodbye()
        if self._refusal is not None:
            raise self._refusal

    # What this machine does

    def _turn(self) -> None:
        orders = None
        while not self._orders.empty():
            orders = self._orders.get()
        if not self._crew.is_alive() and not self._leaving.is_set():
            self._replace_crew()
        with self._lock:
            if orders is not None:
                self._follow(orders)
            for run in self._runs.values():
                run.advance(self._crew)
            for news in self._crew.news():
                if news.run in self._runs:
                    self._runs[news.run].hear(news)
        self._show(self._status_line())

    def _replace_crew(self) -> None:
        """The crew is gone, with all its workers: a new one takes over."""
        self._tell("the process that holds this machine's workers has ended; a new one starts")
        self._crew.close(0.0)
        self._crew = CrewLine()
        self._crew.start()
        for run in self._runs.values():
            run.begin_again()

    def _follow(self, orders: Orders) -> None:
        if orders.leave and not self._leaving.is_set():
            self._tell(f"{self._membership.host} asks this machine to leave")
            self._leaving.set()
        wanted = {assignment.run: assignment for assignment in orders.assignments}
        for name, assignment in wanted.items():
            if name not in self._runs:
                self._runs[name] = self._take_on(assignment)
            self._runs[name].follow(assignment, orders.gate)
        for name in self._runs.keys() - wanted.keys():
            # All of it is at the host, or the host does not know the run any more.
            self._runs.pop(name).drop(self._crew)

    def _take_on(self, assignment: Assignment) -> LocalRun:
        what = assignment.task.entry or (assignment.task.settings or {}).get("model", "")
        self._tell(f"run {assignment.run}: {what}, started by {assignment.started_by}")
        if assignment.task.bundle:
            self._tell(f"this machine runs code from {assignment.started_by}: bundle {assignment.task.bundle[:12]}")
        return LocalRun(
            assignment,
            home=self._home,
            membership=self._membership,
            gate=self._gate_socket,
            threads=self._threads,
            data_dir=read_environment().data_dir.absolute(),
            tell=self._tell,
        )

    def _status_line(self) -> str:
        host = self._membership.host
        if self._silent_since is not None:
            silent_s = time.monotonic() - self._silent_since
            return f"{host} does not answer for {silent_s:.0f} s; what runs here waits for it"
        for run in self._runs.values():
            if run.is_training:
                pace = read_pace(run.folder)
                return f"run {run.name}: step {pace.step}, {pace.samples_per_s:,.0f} samples/s over all machines"
        return f"joined {host} as {self._membership.machine}; waiting for work"

    def _wind_down(self) -> None:
        """Let the workers finish their step, and wait until what they wrote is at the host."""
        with self._lock:
            for run in self._runs.values():
                run.stop(self._crew)
        deadline = time.monotonic() + self._patience_s
        while any(run.is_training for run in self._runs.values()) and time.monotonic() < deadline:
            self._turn()
            time.sleep(_LOOK_S)
        self._turn()
        deadline = time.monotonic() + min(_LAST_DELIVERY_S, self._patience_s)
        while self._refusal is None and time.monotonic() < deadline and not all(r.is_home for r in self._runs.values()):
            time.sleep(_LOOK_S)

    def _say_goodbye(self) -> None:
        if self._refusal is None:
            try:
                with HostClient.of(self._membership, timeout_s=3.0) as client:
                    client.ask("POST", "/report", self._report(is_leaving=True))
            except MeetingError as error:
                self._tell(f"left without a goodbye: {error.args[0]}")

    # Threads

    def _listen(self) -> None:
        """Ask for orders, and wait for them."""
        known = ""
        # The doctor's questions come this way, also where large packets are lost.
        with HostClient.of(self._membership, timeout_s=POLL_S + 5, with_small_packets=True) as client:
            while not self._done.is_set():
                try:
                    orders = client.ask_for(Orders, "POST", "/poll", PollRequest(known=known))
                except HostSilentError:
                    self._hear_nothing()
                    continue
                except MeetingError as error:
                    self._be_refused(error)
                    return
                if self._silent_since is not None:
                    self._silent_since, self._reported = None, None
                if orders.digest != known and not self._done.is_set():
                    known = orders.digest
                    self._tell_gate(orders)  # first of all: whoever is to be dialled must be known to it
                    self._visited.follow(orders.visits)  # at once: an examination is many short questions
                    self._orders.put(orders)

    def _deliver(self) -> None:
        """Send home what was written, and say how the workers stand."""
        with HostClient.of(self._membership) as client:
            while not self._done.is_set():
                try:
                    is_busy = self._deliver_once(client)
                except HostSilentError:
                    self._hear_nothing()
                    continue
                except NotAdmittedError as error:
                    self._be_refused(error)
                    return
                except MeetingError as error:
                    self._tell(f"the host refuses a report: {error.args[0]}")
                    is_busy = False
                except OSError as error:  # a folder that was moved, a full disk: what was written goes home later
                    self._tell(f"what this machine wrote cannot be sent just now: {error}")
                    self._done.wait(_TROUBLE_S)
                    is_busy = False
                if not is_busy:
                    self._done.wait(_DELIVER_EVERY_S)

    def _deliver_once(self, client: HostClient) -> bool:
        is_busy = False
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            is_busy |= run.deliver(client)
        report = self._report()
        if self._reported is None or without_times(report) != without_times(self._reported):
            client.ask("POST", "/report", report)
            self._reported = report
        return is_busy

    def _report(self, *, is_leaving: bool = False) -> Report:
        workers = [report for run in list(self._runs.values()) for report in run.reports()]
        links = [] if self._gate is None else link_reports(self._gate)
        return Report(
            devices=self._devices, reach=self._own_reach(), links=links, workers=workers, is_leaving=is_leaving
        )

    def _own_reach(self) -> Reach | None:
        """A laptop's addresses change."""
        if self._gate is not None and time.monotonic() - self._reach_at > _REACH_EVERY_S:
            self._reach_at = time.monotonic()
            self._reach = own_reach(self._gate.port)
        return self._reach

    def _tell_gate(self, orders: Orders) -> None:
        if self._gate is not None:
            first = self._membership.address
            self._gate.update(as_settings(orders.gate, self._membership.machine, first=first))

    def _count_devices(self) -> None:
        if self._devices is None:
            self._devices = find_devices()

    def _hear_nothing(self) -> None:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
        self._done.wait(_SILENCE_S)

    def _be_refused(self, error: MeetingError) -> None:
        if not self._done.is_set():  # after the goodbye the host may well not know this machine any more
            self._refusal = error
            self._leaving.set()
