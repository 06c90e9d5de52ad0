"""One run's part on this machine: prepares, starts and watches its workers. Used by the agent's loop only."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from potluck.core.states import ENDED, WorkerPhase
from potluck.doctor.lost_peer import tells_of_lost_peer
from potluck.meeting.agent.messages import AgentMessage, AgentPlace, FilesToSend, RunPrepared
from potluck.meeting.agent.plain_environment import plain_environments
from potluck.meeting.agent.plain_usage import PlainUsage
from potluck.meeting.agent.preparation import prepare
from potluck.meeting.agent.worker_environment import worker_environments
from potluck.meeting.succession.run_place import run_place
from potluck.meeting.transfer.run_tail import read_pace
from potluck.meeting.wire import Assignment, GateOrders, WorkerReport
from potluck.meeting.workers.crash import kind_of_crash
from potluck.meeting.workers.messages import (
    BuiltInTask,
    PlainTask,
    ScriptTask,
    StartWorkers,
    StopWorkers,
    ToForkServer,
    WorkerNews,
)
from potluck.sharing.folders import as_variable

_STOPPING = ("stopping", "leaving")


class LocalRun:
    """What this machine does for a run, from the first order to the last byte sent."""

    def __init__(
        self,
        assignment: Assignment,
        place: AgentPlace,
        *,
        send: Callable[[ToForkServer], None],
        post: Callable[[AgentMessage], None],
        tell: Callable[[str], None],
    ) -> None:
        self.assignment = assignment
        self._place = place
        self._send = send
        self._post = post
        self._tell = tell
        self._gates: GateOrders | None = None
        own = run_place(place.home, assignment.run, assignment.run_id)
        self.folder = Path(assignment.runs_dir) / assignment.run if assignment.runs_dir else own
        self._prepared = RunPrepared(
            run=assignment.run, start_number=assignment.start_number, working_folder=Path.cwd()
        )
        self._reports: dict[int, WorkerReport] = {
            number: WorkerReport(
                run=assignment.run, worker=number, state="preparing", start_number=assignment.start_number
            )
            for number in assignment.workers
        }
        self._told_crashes: set[str] = set()
        self._stage: Literal["new", "preparing", "started", "resting", "stopping", "leaving"] = "new"
        """`preparing` lasts until the workers start; their states say whether preparation has ended."""
        self._started_with = 0
        """The number of workers that the whole run expected when this machine's workers were started."""
        self._num_starts = 0
        self.is_home = False
        """Whether all workers here have ended and all their files are at the host."""
        self._usage: PlainUsage | None = None
        """In a plain run: notes how busy its workers and this machine are."""

    @property
    def name(self) -> str:
        return self.assignment.run

    @property
    def is_plain(self) -> bool:
        return self.assignment.plain is not None

    @property
    def is_training(self) -> bool:
        return any(report.state == "running" for report in self._reports.values())

    @property
    def has_ended(self) -> bool:
        """Whether all workers here have ended; their files may still be on their way to the host."""
        return all(report.state in ENDED for report in self._reports.values())

    def files(self) -> FilesToSend:
        """The run's files on this machine, for the delivering thread."""
        return FilesToSend(
            run=self.name,
            start_number=self.assignment.start_number,
            num_starts=self._num_starts,
            folder=self.folder,
            is_at_host=self.assignment.runs_dir is not None,
            is_training=self.is_training,
        )

    def reports(self) -> list[WorkerReport]:
        """The state of each worker here."""
        return [
            report.model_copy(update={"is_home": report.state in ENDED and self.is_home})
            for report in self._reports.values()
        ]

    # Messages from the agent's loop

    def follow(self, assignment: Assignment, gates: GateOrders) -> None:
        """Take the host's current assignment and the gates' members; `advance` carries them out."""
        self.assignment, self._gates = assignment, gates

    def hear_prepared(self, prepared: RunPrepared) -> None:
        """Preparation has ended: the workers are ready, or have failed."""
        self._prepared = prepared
        self._set_all("failed" if prepared.failure else "ready", prepared.failure)

    def hear(self, news: WorkerNews) -> None:
        """Take the fork server's news of a worker; prints each kind of crash once."""
        before = self._reports.get(news.worker)
        if before is None:
            return
        if news.message and kind_of_crash(news.message) not in self._told_crashes:
            self._told_crashes.add(kind_of_crash(news.message))
            worker = f"run {self.name}: worker {self._place.membership.machine}-{news.worker} on this machine"
            is_effect = self.is_plain and tells_of_lost_peer(news.message)
            self._tell(
                f"{worker} has lost its connection to another worker, and ended"
                if is_effect
                else f"{worker} crashed:\n{news.message}"
            )
        message = news.message[-20_000:]
        if self.is_plain and self._stage == "leaving" and news.state == "stopped":
            message = _has_left(self._place.membership.machine)
        self._reports[news.worker] = before.model_copy(
            update={"state": news.state, "message": message, "restarts": news.restarts}
        )
        if self._usage is not None and self.has_ended:
            self._usage.close(self._reports.values())

    def hear_delivered(self, files: frozenset[FilesToSend]) -> None:
        """Note whether this run's files are at the host; an entry from an earlier state of the run does not count."""
        self.is_home = self.files() in files

    def lose_workers(self) -> None:
        """The fork server has ended, and all workers with it: make them ready to start again, unless they stop."""
        if self._stage in _STOPPING:
            self._set_all("stopped")
        elif self.is_plain and self.is_training:
            self._set_all("failed", "the process that held this machine's workers has ended")
        elif self.is_training:
            self._stage = "resting" if self._stage == "resting" else "preparing"
            for number, report in self._reports.items():
                if report.state == "running":
                    self._reports[number] = report.model_copy(update={"state": "ready"})
        if self._usage is not None and self.has_ended:
            self._usage.close(self._reports.values())

    # Following orders

    def advance(self) -> None:
        """Do the next thing that the assignment asks for."""
        if self._usage is not None:
            self._usage.look()
        order = self.assignment.phase
        if self._stage in _STOPPING:
            return
        if order == "rest":
            self._rest()
        elif self._stage == "resting":
            self._end_rest()
        elif order == "go" and self._stage == "new" and self.is_plain:
            # The workers of a plain run start after all machines have prepared: this machine's were lost since then.
            self._set_all("failed", f"potluck on {self._place.membership.machine} was started again during the run")
        elif order in ("prepare", "go") and self._stage == "new":
            self._prepare()
        elif order == "go" and self._stage == "preparing":
            if (
                self._gates is not None
                and self._gates.has(self._place.membership.machine)
                and any(report.state == "ready" for report in self._reports.values())
            ):
                self._start()
        elif order == "go" and self._started_with != self.assignment.expected and not self.is_plain:
            self._expect_fewer()
        elif order == "stop":
            self.stop()
        elif order == "end" and self._stage != "started":
            self._set_all("stopped")
        elif order == "end" and self.is_training and _waits_in_vain(self.assignment, self._place, self.folder):
            self.stop()

    def stop(self, *, is_leaving: bool = False, is_over: bool = False) -> None:
        """Ask the workers to stop after their step.

        `is_leaving`: because this machine leaves; the run may go on. `is_over`: the host has no more orders for it.
        """
        if self._stage in ("new", "preparing"):
            has_left = _has_left(self._place.membership.machine) if self.is_plain and is_leaving else ""
            self._set_all("stopped", has_left)
        elif self._stage not in _STOPPING and self.is_training:
            self._send(StopWorkers(run=self.name))
        if self._stage not in _STOPPING:
            self._stage = "leaving" if is_leaving else "stopping"
        if is_over and self._usage is not None:
            self._usage.close(self._reports.values())

    def _rest(self) -> None:
        """Stop the workers while this machine cannot reach some of the others, which train on."""
        if self._stage != "resting" and self.is_training:
            self._stage = "resting"
            self._send(StopWorkers(run=self.name))

    def _end_rest(self) -> None:
        """This machine reaches the others again: make its workers ready to start again once they have ended."""
        if not self.is_training:
            self._stage = "preparing"
            for number, report in self._reports.items():
                self._reports[number] = report.model_copy(update={"state": "ready", "message": ""})

    def _prepare(self) -> None:
        self._stage = "preparing"
        place, assignment, folder, post = self._place, self.assignment, self.folder, self._post
        threading.Thread(
            target=lambda: post(prepare(place, assignment, folder)), name="potluck-prepare", daemon=True
        ).start()

    def _start(self) -> None:
        assert self._gates is not None
        self._stage, self._started_with = "started", self.assignment.expected
        self._num_starts += 1
        self.is_home = False
        self._send(
            StartWorkers(
                run=self.name,
                machine=self._place.membership.machine,
                run_folder=str(self.folder),
                folder=str(self._prepared.working_folder),
                task=_task_of(self.assignment),
                workers={
                    number: {**variables, **as_variable(list(self._prepared.data))}
                    for number, variables in _environments(
                        self._place, self.assignment, self._gates, self.folder
                    ).items()
                },
            )
        )
        if self.is_plain:
            place = self._place
            self._usage = PlainUsage(
                self.folder, self._prepared.working_folder, place.membership.machine, self.assignment, gate=place.gate
            )
        self._set_all("running")

    def _expect_fewer(self) -> None:
        """Before the first step all workers wait for each other: restart those here when the run expects fewer."""
        self._started_with = self.assignment.expected
        if self.is_training and read_pace(self.folder).step == 0:
            self._start()

    def _set_all(self, state: WorkerPhase, message: str = "") -> None:
        """Set the state of all workers that have not ended."""
        for number, report in self._reports.items():
            if report.state not in ENDED:
                self._reports[number] = report.model_copy(update={"state": state, "message": message})


def _waits_in_vain(assignment: Assignment, place: AgentPlace, folder: Path) -> bool:
    """Whether a worker here came back so late that the others, for which it waits, have finished."""
    own = {f"{place.membership.machine}-{number}" for number in assignment.workers}
    return not own.isdisjoint(read_pace(folder).waiting)


def _has_left(machine: str) -> str:
    return f"{machine} has left, and the others cannot go on without its worker"


def _task_of(assignment: Assignment) -> BuiltInTask | ScriptTask | PlainTask:
    task = assignment.task
    if task.settings is not None:
        return BuiltInTask(settings=task.settings)
    kind = ScriptTask if assignment.plain is None else PlainTask
    return kind(entry=task.entry, arguments=task.arguments)


def _environments(
    place: AgentPlace, assignment: Assignment, gates: GateOrders, folder: Path
) -> dict[int, dict[str, str]]:
    if assignment.plain is not None:
        return plain_environments(place, assignment, assignment.plain, gates, folder.absolute() / "logs")
    return worker_environments(place, assignment, gates, folder.parent)
