"""The states of runs, workers and their processes, and the orders that a host gives a machine for a run."""

from typing import Literal, TypeAlias

RunPhase: TypeAlias = Literal["preparing", "running", "paused", "stopping", "finished", "stopped", "failed"]
"""The state of a whole run, as the host keeps it."""
WorkerPhase: TypeAlias = Literal["preparing", "ready", "running", "finished", "stopped", "failed"]
"""The state of one worker of a run, as the worker's machine reports it."""
ProcessPhase: TypeAlias = Literal["waiting", "running", "finished", "stopped", "failed"]
"""The state of a worker's process, as the fork server keeps it; `waiting`: to be started, or restarted."""
Order: TypeAlias = Literal["prepare", "go", "rest", "stop", "end"]
"""What the host orders a machine to do for a run now."""
Ending: TypeAlias = Literal["finished", "stopped", "failed"]
"""How a run, or a worker, ended."""
ENDED: tuple[Ending, ...] = ("finished", "stopped", "failed")
"""The final states of a run and of a worker."""
