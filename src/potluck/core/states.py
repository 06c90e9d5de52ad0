"""Where a run and its workers stand, and what a machine is told to do for a run: every word once."""

from typing import Literal, TypeAlias

RunPhase: TypeAlias = Literal["preparing", "running", "paused", "stopping", "finished", "stopped", "failed"]
"""Where a whole run stands, as the host keeps it."""
WorkerPhase: TypeAlias = Literal["preparing", "ready", "running", "finished", "stopped", "failed"]
"""Where one worker of a run stands, as its machine tells it."""
ProcessPhase: TypeAlias = Literal["waiting", "running", "finished", "stopped", "failed"]
"""Where a worker's process stands, as the fork server keeps it; `waiting`: to be started, or started again."""
Order: TypeAlias = Literal["prepare", "go", "rest", "stop", "end"]
"""What a machine should do for a run now."""
Ending: TypeAlias = Literal["finished", "stopped", "failed"]
"""How a run, or a worker, ended."""
ENDED: tuple[Ending, ...] = ("finished", "stopped", "failed")
"""Of a run, and of a worker: nothing more comes after these."""
