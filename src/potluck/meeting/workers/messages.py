"""Messages between an agent and its fork server, as JSON lines on the fork server's stdin and stdout."""

from typing import Any, TypeAlias

import msgspec

from potluck.core.states import WorkerPhase

STEP_S = 60.0  # how long a stopping worker may take for its step and its checkpoint


class WorkerMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages; the JSON names the message's type."""


# From the agent to the fork server


class BuiltInTask(WorkerMessage, frozen=True, kw_only=True):
    """Train a built-in model with these settings."""

    settings: dict[str, Any]


class ScriptTask(WorkerMessage, frozen=True, kw_only=True):
    """Run the user's script."""

    entry: str
    """The script's path, relative to StartWorkers.folder."""
    arguments: list[str]


class PlainTask(WorkerMessage, frozen=True, kw_only=True):
    """Run a script that does not use Potluck: its workers are not restarted, and end soon after they are asked to."""

    entry: str
    """The script's path, relative to StartWorkers.folder."""
    arguments: list[str]


class StartWorkers(WorkerMessage, frozen=True, kw_only=True):
    """Start a run's workers; earlier workers of the run are ended first."""

    run: str
    machine: str
    run_folder: str
    folder: str
    """The workers' current folder, and the folder of the script."""
    task: BuiltInTask | ScriptTask | PlainTask
    workers: dict[int, dict[str, str]]
    """Each worker's environment variables, by its number in the run; they include the run's secret."""


class StopWorkers(WorkerMessage, frozen=True, kw_only=True):
    """Ask a run's workers to stop after their step."""

    run: str


class EndWithin(WorkerMessage, frozen=True, kw_only=True):
    """How long workers may take for their step after stdin has closed, which ends the fork server."""

    step_s: float


# From the fork server to the agent


class ForkServerReady(WorkerMessage, frozen=True, kw_only=True):
    """The fork server has imported everything that a worker needs."""


class WorkerNews(WorkerMessage, frozen=True, kw_only=True):
    """The new state of a worker of a run."""

    run: str
    worker: int
    state: WorkerPhase
    message: str = ""
    """How the worker crashed; empty once it is started again."""
    restarts: int = 0


ToForkServer: TypeAlias = StartWorkers | StopWorkers | EndWithin
FromForkServer: TypeAlias = ForkServerReady | WorkerNews
