"""What an agent and its fork server tell each other, as JSON lines on the fork server's stdin and stdout."""

from typing import Any, TypeAlias

import msgspec

from potluck.core.states import WorkerPhase

STEP_S = 60.0  # for a worker's step and its checkpoint


class WorkerMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """A message that can be told from others."""


# From the agent to the fork server


class BuiltInTask(WorkerMessage, frozen=True, kw_only=True):
    """Train a built-in model with these settings."""

    settings: dict[str, Any]


class ScriptTask(WorkerMessage, frozen=True, kw_only=True):
    """Run the user's script."""

    entry: str
    """Below the workers' folder."""
    arguments: list[str]


class StartWorkers(WorkerMessage, frozen=True, kw_only=True):
    """Start a run's workers, in the place of those that may be there."""

    run: str
    machine: str
    run_folder: str
    folder: str
    """Where the workers run: their current folder, and where a script lies."""
    task: BuiltInTask | ScriptTask
    workers: dict[int, dict[str, str]]
    """Each worker's environment variables, by its number in the run's files; secrets travel here."""


class StopWorkers(WorkerMessage, frozen=True, kw_only=True):
    """Ask a run's workers to stop after their step."""

    run: str


class EndWithin(WorkerMessage, frozen=True, kw_only=True):
    """How long all workers may take for their step when stdin ends, which ends the fork server."""

    step_s: float


# From the fork server to the agent


class ForkServerReady(WorkerMessage, frozen=True, kw_only=True):
    """Everything that a worker imports is imported."""


class WorkerNews(WorkerMessage, frozen=True, kw_only=True):
    """Where a worker of a run stands now."""

    run: str
    worker: int
    state: WorkerPhase
    message: str = ""
    """How it crashed, until it is started again."""
    restarts: int = 0


ToForkServer: TypeAlias = StartWorkers | StopWorkers | EndWithin
FromForkServer: TypeAlias = ForkServerReady | WorkerNews
