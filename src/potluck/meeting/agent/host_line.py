"""The agent's two threads that talk to the host: one polls for orders, the other sends reports and workers' files."""

import queue
import threading
from collections.abc import Callable

from potluck.core.disk import as_disk_error
from potluck.core.errors import MeetingError
from potluck.core.states import ENDED
from potluck.meeting.access.gating import without_times
from potluck.meeting.agent.messages import (
    AgentMessage,
    Delivered,
    Delivery,
    FilesToSend,
    HostHeard,
    HostRefuses,
    HostSilent,
    Trouble,
)
from potluck.meeting.agent.run_delivery import RunDelivery
from potluck.meeting.client.client import HostClient, HostInTroubleError, HostSilentError, NotAdmittedError
from potluck.meeting.home import HostMembership
from potluck.meeting.wire import POLL_S, Orders, PollRequest, Report

_DELIVER_EVERY_S = 0.5
_SILENCE_S = 1.0
_TROUBLE_S = 10.0


class HostLine:
    """Both threads. They share no state with the agent's loop: everything that they learn is posted as a message."""

    def __init__(
        self,
        membership: HostMembership,
        post: Callable[[AgentMessage], None],
        electorate: Callable[[], int] = lambda: 0,
    ) -> None:
        self._membership = membership
        self._to_agent = post
        self._electorate = electorate
        self._over = threading.Event()
        self._deliveries: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._forgotten = threading.Event()
        self._delivering = threading.Thread(target=self._deliver, name="potluck-deliver", daemon=True)

    def _post(self, message: AgentMessage) -> None:
        """Post a message, unless this line is over: a line to the next host may have begun."""
        if not self._over.is_set():
            self._to_agent(message)

    def start(self) -> None:
        threading.Thread(target=self._listen, name="potluck-listen", daemon=True).start()
        self._delivering.start()

    def deliver(self, delivery: Delivery) -> None:
        """Queue this machine's current report and files; only the latest delivery counts."""
        self._deliveries.put(delivery)

    def report_again(self) -> None:
        """Send the report again: a host that was away may have forgotten it."""
        self._forgotten.set()

    def hang_up(self) -> None:
        """Send nothing more to the host; returns at once."""
        self._over.set()

    def close(self, patience_s: float) -> None:
        """Hang up, and wait up to `patience_s` for a delivery in progress; the polling thread may be left waiting."""
        self._over.set()
        self._delivering.join(patience_s)

    def _listen(self) -> None:
        """Long poll for orders, and post them when they change."""
        known: Orders | None = None
        # The doctor's questions come with the orders, and must arrive even where the network loses large packets.
        with HostClient.of(self._membership, timeout_s=POLL_S + 5, with_small_packets=True) as client:
            while not self._over.is_set():
                try:
                    asked = PollRequest(known=known.digest if known else "", electorate=self._electorate())
                    orders = client.ask_for(Orders, "POST", "/poll", asked)
                except HostSilentError as error:
                    self._hear_nothing(error)
                    continue
                except MeetingError as error:
                    self._be_refused(error)
                    return
                self._post(HostHeard())
                if known is None or orders.digest != known.digest:
                    known = orders.complete(known)
                    self._post(known)

    def _deliver(self) -> None:
        """Send the workers' files, then this machine's report."""
        deliverer = _Deliverer(self._membership.machine, self._post)
        with HostClient.of(self._membership) as client:
            delivery = self._deliveries.get()
            while not self._over.is_set():
                delivery = self._latest(delivery)
                if self._forgotten.is_set():
                    self._forgotten.clear()
                    deliverer.reported = None
                try:
                    is_busy, delivered = deliverer.send_files(client, delivery.files)
                    delivery = self._latest(delivery)
                    if not self._over.is_set():
                        deliverer.send_report(client, delivery, delivered)
                except HostSilentError as error:
                    self._hear_nothing(error)
                    continue
                except NotAdmittedError as error:
                    self._be_refused(error)
                    return
                except MeetingError as error:
                    self._post(Trouble(f"the host refuses a report: {error.args[0]}"))
                    is_busy = False
                except OSError as error:  # a folder that was moved, a full disk: the files are sent later
                    trouble = as_disk_error(error) or error
                    self._post(Trouble(f"what this machine wrote cannot be sent just now: {trouble}"))
                    self._over.wait(_TROUBLE_S)
                    is_busy = False
                if not is_busy:
                    self._over.wait(_DELIVER_EVERY_S)

    def _latest(self, delivery: Delivery) -> Delivery:
        while not self._deliveries.empty():
            delivery = self._deliveries.get()
        return delivery

    def _hear_nothing(self, error: HostSilentError) -> None:
        self._post(Trouble(str(error)) if isinstance(error, HostInTroubleError) else HostSilent())
        self._over.wait(_SILENCE_S)

    def _be_refused(self, error: MeetingError) -> None:
        if not self._over.is_set():  # after the goodbye the host may not know this machine any more
            self._post(HostRefuses(error))


class _Deliverer:
    """The delivering thread's knowledge of what has arrived at the host."""

    def __init__(self, machine: str, post: Callable[[AgentMessage], None]) -> None:
        self._machine = machine
        self._post = post
        self._runs: dict[tuple[str, int], RunDelivery] = {}
        self._delivered: frozenset[FilesToSend] = frozenset()
        self.reported: Report | None = None

    def send_files(self, client: HostClient, files: tuple[FilesToSend, ...]) -> tuple[bool, frozenset[FilesToSend]]:
        """Send some of the new bytes; returns whether there are more, and the runs whose files are all at the host."""
        wanted = {(one.run, one.start_number): one for one in files}
        self._runs = {key: run for key, run in self._runs.items() if key in wanted}
        is_busy, delivered = False, set()
        for key, one in wanted.items():
            if one.is_at_host or not one.folder.is_dir():
                has_more = False
            else:
                if key not in self._runs:
                    self._runs[key] = RunDelivery(
                        one.run, one.folder, self._machine, lambda text: self._post(Trouble(text))
                    )
                has_more = self._runs[key].advance(client)
            is_busy |= has_more
            if not has_more and not one.is_training:
                delivered.add(one)
        if delivered != self._delivered:
            self._delivered = frozenset(delivered)
            self._post(Delivered(self._delivered))
        return is_busy, self._delivered

    def send_report(self, client: HostClient, delivery: Delivery, delivered: frozenset[FilesToSend]) -> None:
        """Send the report if it has changed; an ended worker is home when its run's files here are all at the host."""
        home = {files.run for files in delivery.files if files in delivered}
        workers = [
            worker.model_copy(update={"is_home": worker.state in ENDED and worker.run in home})
            for worker in delivery.report.workers
        ]
        report = delivery.report.model_copy(update={"workers": workers})
        if self.reported is None or without_times(report) != without_times(self.reported):
            client.ask("POST", "/report", report)
            self.reported = report
