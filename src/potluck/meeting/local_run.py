"""One run's part on this machine: prepared, started, watched, sent home."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

from potluck.core.environment import gate_variables
from potluck.core.errors import MeetingError, PotluckError, ShippingError
from potluck.core.run_folder import RunFolder
from potluck.engine.addresses import address_towards
from potluck.gates.loopback import address_of
from potluck.meeting.checkpoint_upload import CheckpointUpload
from potluck.meeting.client import HostClient, HostSilentError, NotAdmittedError
from potluck.meeting.crew_line import CrewLine, WorkerNews
from potluck.meeting.home import Home, Membership
from potluck.meeting.news import read_pace
from potluck.meeting.preparing import claim_folder, fetch_checkpoint, fetch_script
from potluck.meeting.shipping import Shipper
from potluck.meeting.wire import Assignment, GateOrders, WorkerReport

_ENDED = ("finished", "stopped", "failed")


class LocalRun:
    """What this machine does for a run, from the first order to the last byte sent."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        home: Home,
        membership: Membership,
        gate: str,
        threads: int | None,
        data_dir: Path,
        tell: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self.name = assignment.run
        self._home = home
        self._membership = membership
        self._gate = gate
        self._gate_orders: GateOrders | None = None
        self._threads = threads
        self._data_dir = data_dir
        self._tell = tell
        # The host's own machine writes where everything comes together: nothing has to travel.
        self._is_at_home = assignment.runs_dir is not None
        self._runs_dir = Path(assignment.runs_dir) if assignment.runs_dir else home.runs_dir.absolute()
        self.folder = self._runs_dir / self.name
        self._place = Path.cwd()
        self._reports: dict[int, WorkerReport] = {
            number: WorkerReport(run=self.name, worker=number, state="preparing") for number in assignment.workers
        }
        self._started_with: int | None = None
        self._is_stopping = False
        self._preparing: threading.Thread | None = None
        self._has_shipped = False
        self._shipper: Shipper | None = None
        self._upload = CheckpointUpload(RunFolder(self.folder))

    # Orders

    def follow(self, assignment: Assignment, gate: GateOrders) -> None:
        """What the host wants now, and where the run's machines are."""
        self.assignment, self._gate_orders = assignment, gate

    def advance(self, crew: CrewLine) -> None:
        """Do the next thing that the orders ask for."""
        phase = self.assignment.phase
        if self._is_stopping:
            return
        if phase in ("prepare", "go") and self._preparing is None:
            self._prepare()
        elif phase == "go" and self._started_with is None and self._any("ready"):
            if self._is_member():
                self._start(crew)
        elif phase == "go" and self._started_with not in (None, self.assignment.expected):
            self._expect_fewer(crew)
        elif phase == "stop":
            self.stop(crew)
        elif phase == "end" and self._started_with is None:
            self._set_all("stopped")

    def _is_member(self) -> bool:
        """Whether the host has heard where this machine's gate is: after joining again that takes a moment."""
        orders = self._gate_orders
        return orders is not None and any(one.machine == self._membership.machine for one in orders.members)

    def stop(self, crew: CrewLine) -> None:
        """Ask the workers to stop after their step."""
        if self._started_with is None:
            self._set_all("stopped")
        elif not self._is_stopping and self.is_training:
            crew.send(stop=self.name)
        self._is_stopping = True

    def begin_again(self) -> None:
        """The workers are gone with their supervisor: start them as if for the first time."""
        if self.is_training:
            self._started_with = None
            for number, report in self._reports.items():
                if report.state == "running":
                    self._reports[number] = report.model_copy(update={"state": "ready"})

    def drop(self, crew: CrewLine) -> None:
        """The host does not want this run any more."""
        if self.is_training:
            crew.send(stop=self.name)

    def hear(self, news: WorkerNews) -> None:
        """What the crew says of a worker."""
        before = self._reports.get(news.worker)
        if before is None:
            return
        if news.message and news.message != before.message:
            self._tell(f"worker {news.worker} of run {self.name}:\n{news.message}")
        self._reports[news.worker] = before.model_copy(
            update={"state": news.state, "message": news.message[-20_000:], "restarts": news.restarts}
        )

    def reports(self) -> list[WorkerReport]:
        """Where the workers stand; an ended one is home when all its files are."""
        return [
            report.model_copy(update={"is_home": report.state in _ENDED and self._has_shipped})
            for report in list(self._reports.values())
        ]

    @property
    def is_training(self) -> bool:
        return any(report.state == "running" for report in self._reports.values())

    @property
    def is_home(self) -> bool:
        return self._has_shipped and not self.is_training

    def _any(self, state: str) -> bool:
        return any(report.state == state for report in self._reports.values())

    def _set_all(self, state: str, message: str = "") -> None:
        for number, report in list(self._reports.items()):
            if report.state not in _ENDED:
                self._reports[number] = report.model_copy(update={"state": state, "message": message})

    # Preparing

    def _prepare(self) -> None:
        self._preparing = threading.Thread(target=self._get_ready, name="potluck-prepare", daemon=True)
        self._preparing.start()

    def _get_ready(self) -> None:
        """A folder for this run and no other, what the run goes on from, and the script if there is one."""
        try:
            if not self._is_at_home:
                claim_folder(self.folder, self.assignment.run_id, is_resumed=self.assignment.is_resumed)
            if self.assignment.fetches_checkpoint:
                fetch_checkpoint(self._membership, RunFolder(self.folder))
            if self.assignment.task.bundle is not None:
                self._place = fetch_script(self._membership, self._home, self.assignment)
        except PotluckError as error:
            self._set_all("failed", str(error))
        else:
            self._set_all("ready")

    # Training

    def _start(self, crew: CrewLine) -> None:
        assignment = self.assignment
        self._started_with = assignment.expected
        crew.send(
            start={
                "run": self.name,
                "machine": self._membership.machine,
                "run_folder": str(self.folder),
                "folder": str(self._place),
                "task": assignment.task.model_dump(),
                "workers": {
                    number: self._environment(number, device, index)
                    for index, (number, device) in enumerate(zip(assignment.workers, assignment.devices, strict=True))
                },
            }
        )
        self._set_all("running")

    def _environment(self, number: int, device: str, index: int) -> dict[str, str]:
        """A worker's place. The secret goes this way, never into arguments, which everybody on a machine can read."""
        assignment, membership, orders = self.assignment, self._membership, self._gate_orders
        assert orders is not None
        addresses = {one.machine: address_of(orders.block, one.number) for one in orders.members}
        variables = {
            "POTLUCK_LIGHTHOUSE": f"http://{addresses[orders.host]}:{assignment.lighthouse_port}",
            **gate_variables(self._gate, assignment.run_id, addresses[membership.machine]),
            "POTLUCK_SECRET": assignment.secret,
            "POTLUCK_WORKER": str(number),
            "POTLUCK_WORKERS": str(assignment.expected),
            "POTLUCK_RUN": self.name,
            "POTLUCK_RUNS_DIR": str(self._runs_dir),
            "POTLUCK_DATA_DIR": str(self._data_dir),
            "POTLUCK_MACHINE": membership.machine,
            "POTLUCK_DEVICE": device,
            "POTLUCK_RESUME": "1",
            "LOCAL_RANK": str(index),
        }
        if self._threads is not None:
            variables["POTLUCK_THREADS"] = str(self._threads)
        if assignment.is_direct:
            variables["POTLUCK_GRADIENT_ADDRESS"] = address_towards(membership.address)
        return variables

    def _expect_fewer(self, crew: CrewLine) -> None:
        """Before the first step all wait for each other: begin again when there is one less to wait for."""
        self._started_with = self.assignment.expected
        if self.is_training and read_pace(self.folder).step == 0:
            self._start(crew)

    # Sending home

    def deliver(self, client: HostClient) -> bool:
        """Send some of what is new; returns whether there is more."""
        if self._is_at_home:
            self._has_shipped = not self.is_training
            return False
        if not self.folder.is_dir():
            self._has_shipped = not self.is_training
            return False
        has_ended = not self.is_training
        if self._shipper is None:
            self._shipper = Shipper(self.folder, lambda *delivery: self._send(client, *delivery))
        remaining = self._shipper.ship()
        try:
            is_uploading = self._upload.advance(client, self.name)
        except (HostSilentError, NotAdmittedError):
            raise
        except MeetingError as error:
            self._tell(f"a checkpoint of run {self.name} stays here: {error.args[0]}")
            is_uploading = False
        # What a worker wrote between looking and now is sent with the next turn.
        self._has_shipped = has_ended and not remaining and not is_uploading
        return bool(remaining) or is_uploading

    def _send(self, client: HostClient, file_name: str, offset: int, data: bytes) -> int:
        try:
            answer = client.send("POST", f"/runs/{self.name}/files?file={file_name}&offset={offset}", data)
        except (HostSilentError, NotAdmittedError):
            raise
        except MeetingError as error:
            self._tell(f"{file_name} of run {self.name} stays here: {error.args[0]}")
            raise ShippingError(str(error.args[0]), fix=error.fix) from error
        return int(json.loads(answer)["size"])
