"""The events of a run. A field may be added with a default; none is renamed or removed.

JSON has no infinity and no not-a-number: what a model computes goes through `finite` and is None then.
"""

import math
from typing import Literal

import msgspec


def finite(value: float | None) -> float | None:
    """The number, or None where JSON has no word for it."""
    return value if value is not None and math.isfinite(value) else None


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Something that happened to one worker of a run."""


class RunStarted(Event, frozen=True, tag="run_started"):
    """A worker process begins. A resumed run has one of these for each process."""

    run: str
    machine: str
    worker: int
    process_id: int
    device: str
    mixed_precision: str
    versions: dict[str, str]


class RunResumed(Event, frozen=True, tag="run_resumed"):
    """State comes from a checkpoint; whatever this file says of later steps did not last."""

    step: int
    checkpoint: str


class ModelPrepared(Event, frozen=True, tag="model_prepared"):
    """The model is on its device and wrapped."""

    num_parameters: int


class TrainingBegan(Event, frozen=True, tag="training_began"):
    """The length of the work is known."""

    num_samples: int
    global_batch: int
    steps_per_epoch: int
    num_epochs: int
    last_step: int


class StepTiming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where one worker's time went from one commit to the next; the parts add up to it."""

    data_wait_s: float = 0.0
    compute_s: float = 0.0
    """Forward, backward and the optimizer."""
    exchange_wait_s: float = 0.0
    """From this worker's last gradient to the end of the exchange: the wait for slower workers, and the wire."""
    commit_s: float = 0.0
    rest_s: float = 0.0
    """The script's own code, events, checkpoints."""
    retry_s: float = 0.0
    """Attempts that a lost worker spoiled."""

    @property
    def step_s(self) -> float:
        return self.own_s + self.exchange_wait_s + self.retry_s

    @property
    def own_s(self) -> float:
        """What the worker does between two exchanges without waiting for others: what a plan makes equal."""
        return self.data_wait_s + self.compute_s + self.commit_s + self.rest_s


class StepCommitted(Event, frozen=True, tag="step_committed", gc=False):
    """One optimizer step is done: samples and loss are those of the whole global batch."""

    step: int
    epoch: int
    samples: int
    loss: float | None
    seconds: float
    own_samples: int = 0  # this worker's part
    formation: int = 0  # which forming of the group: parts of one step in one formation add up to the global batch
    skipped: bool = False  # fp16 gradients overflowed: the scale was lowered and no parameter changed
    timing: StepTiming | None = None


class PlanChanged(Event, frozen=True, tag="plan_changed"):
    """From this step on the global batch is split so. Every worker computes and tells the same."""

    step: int  # the first committed step that it is for
    policy: str
    shares: dict[str, int]  # by worker
    reason: str  # empty where the split stays, and only what is known of it is newer
    step_s: float  # predicted, like all that follows
    samples_per_s: float
    error: float = 0.0  # relative
    solo_samples_per_s: dict[str, float] = {}  # by worker: what each would do alone
    machines: dict[str, str] = {}  # by worker
    slowest_link: str = ""  # the machine whose link carries the ring, if links were measured

    def replaces(self, shares: dict[str, int]) -> bool:
        """Whether it changes the split that was in force: a plan that is only told again does not."""
        return bool(self.reason) and self.shares != shares


class MachineBenched(Event, frozen=True, tag="machine_benched"):
    """A machine stays joined and takes no samples, because with it a step would be longer."""

    step: int
    machine: str
    reason: str
    samples_per_s: float  # predicted without it
    samples_per_s_with_it: float


class MachineUnbenched(Event, frozen=True, tag="machine_unbenched"):
    """A benched machine takes part again."""

    step: int
    machine: str
    reason: str


class EpochEnded(Event, frozen=True, tag="epoch_ended"):
    """Every sample of the epoch has counted once."""

    epoch: int
    step: int
    samples: int
    loss: float | None
    seconds: float


class MetricsLogged(Event, frozen=True, tag="metrics_logged"):
    """Numbers that the training script wants kept."""

    step: int
    values: dict[str, float | None]


class Evaluated(Event, frozen=True, tag="evaluated"):
    """Exact means over a dataset."""

    step: int
    name: str
    samples: int
    values: dict[str, float | None]
    seconds: float


class CheckpointSaved(Event, frozen=True, tag="checkpoint_saved"):
    """A whole checkpoint is on disk under its final name."""

    step: int
    file: str
    num_bytes: int
    seconds: float


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at a moment; None where the driver does not say."""

    name: str
    busy: float | None = None  # of the time, 0 to 1
    memory_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None


class MachineUsed(Event, frozen=True, tag="machine_used"):
    """How busy a worker's machine is, every few seconds: all of it, not only this run."""

    cpu: float  # of all cores, 0 to 1, since the one before
    memory_bytes: int
    memory_total_bytes: int
    sent_bytes_per_s: float
    received_bytes_per_s: float
    gpus: list[GpuUse] = []
    address: str = ""  # on the way to the other workers, if this one has sent them much
    sending_bytes_per_s: dict[str, float] = {}  # by their addresses, while there was something to send


class Notice(Event, frozen=True, tag="notice"):
    """One line that a person should read."""

    text: str


class RunEnded(Event, frozen=True, tag="run_ended"):
    """The worker process ends in an orderly way."""

    reason: Literal["finished", "stopped", "failed"]
    step: int
    message: str = ""


AnyEvent = (
    RunStarted
    | RunResumed
    | ModelPrepared
    | TrainingBegan
    | StepCommitted
    | PlanChanged
    | MachineBenched
    | MachineUnbenched
    | EpochEnded
    | MetricsLogged
    | Evaluated
    | CheckpointSaved
    | MachineUsed
    | Notice
    | RunEnded
)


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of an event file."""

    sequence: int
    time: float  # this machine's clock, seconds since 1970
    event: AnyEvent
