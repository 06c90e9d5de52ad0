"""The parts of one worker's run; `engine/start.py` puts them together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from potluck.core.run_folder import RunFolder
from potluck.engine.balance.balance import Balance
from potluck.engine.checkpoints.checkpoints import CheckpointWriter
from potluck.engine.compute.precision import Precision
from potluck.engine.group.protocol import RunGroup
from potluck.engine.steps.journal import Journal
from potluck.engine.steps.tracing import StepTracer
from potluck.measuring.step_timer import StepTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The objects that the loader, the steps and the Run share."""

    folder: RunFolder
    machine: str
    device: torch.device
    precision: Precision
    journal: Journal
    group: RunGroup
    balance: Balance
    timer: StepTimer
    writer: CheckpointWriter
    restored: dict[str, Any] | None
    """The state of the checkpoint that the run resumes from, if any."""
    tracer: StepTracer | None
    """Records a few steps with torch.profiler; None unless the run's options ask for it."""
    record_settings: Callable[[], None]
    """Writes run.yaml; called when training begins."""
    has_agent: bool = False
    """Whether somebody else watches over this process and takes its exit code for that of a worker."""
