"""The events of a run. A field may be added with a default; none is renamed or removed.

JSON has no infinity and no not-a-number: what a model computes goes through `finite` and is None then. Numbers have
bounds, so that whoever adds events up gets numbers from every line that is read as an event.
"""

import math
from typing import Annotated, Literal

import msgspec

from potluck.core.states import Ending

MOST = 1e150  # sums and squares of numbers up to here are numbers as well
Number = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""What a float and a 64-bit array hold exactly."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Seconds since 1970, up to the year 5138."""


def finite(value: float | None) -> float | None:
    """The number, or None where JSON has no word for it, or it is so large that nothing can be computed with it."""
    return value if value is not None and abs(value) <= MOST and not math.isnan(value) else None


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Something that happened to one worker of a run."""


class RunStarted(Event, frozen=True, tag="run_started"):
    """A worker process begins. A resumed run has one of these for each process."""

    run: str
    machine: str
    worker: Count
    process_id: Whole
    device: str
    mixed_precision: str
    versions: dict[str, str]


class RunResumed(Event, frozen=True, tag="run_resumed"):
    """This worker's state comes from a checkpoint. A group goes on from the newest one that a worker has."""

    step: Count
    checkpoint: str


class ModelPrepared(Event, frozen=True, tag="model_prepared"):
    """The model is on its device and wrapped."""

    num_parameters: Count


class TrainingBegan(Event, frozen=True, tag="training_began"):
    """The length of the work is known."""

    num_samples: Count
    global_batch: Count
    steps_per_epoch: Count
    num_epochs: Count
    last_step: Count
    left_out: Count = 0  # batches that the script left out before a resume


class StepTiming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where one worker's time went from one commit to the next; the parts add up to it."""

    data_wait_s: Number = 0.0
    compute_s: Number = 0.0
    """Forward, backward and the optimizer."""
    exchange_wait_s: Number = 0.0
    """From this worker's last gradient to the end of the exchange: the wait for slower workers, and the wire."""
    commit_s: Number = 0.0
    rest_s: Number = 0.0
    """The script's own code, events, checkpoints."""
    retry_s: Number = 0.0
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

    step: Count
    epoch: Count
    samples: Count
    loss: Number | None
    seconds: Number
    own_samples: Count = 0  # this worker's part
    # Parts of one step in one quorum add up to the global batch. Written as "formation", as in older files.
    quorum_id: Whole = msgspec.field(default=0, name="formation")
    skipped: bool = False  # fp16 gradients overflowed: the scale was lowered and no parameter changed
    timing: StepTiming | None = None


class PlanChanged(Event, frozen=True, tag="plan_changed"):
    """From this step on the global batch is split so. Every worker computes and tells the same."""

    step: Count  # the first committed step that it is for
    policy: str
    shares: dict[str, Whole]  # by worker
    reason: str  # empty where the split stays, and only what is known of it is newer
    step_s: Number  # predicted, like all that follows
    samples_per_s: Number
    error: Number = 0.0  # relative
    solo_samples_per_s: dict[str, Number] = {}  # by worker: what each would do alone
    machines: dict[str, str] = {}  # by worker
    slowest_link: str = ""  # the machine whose link carries the ring, if links were measured

    def replaces(self, shares: dict[str, Whole]) -> bool:
        """Whether it changes the split that was in force: a plan that is only told again does not."""
        return bool(self.reason) and self.shares != shares


class MachineBenched(Event, frozen=True, tag="machine_benched"):
    """A machine stays joined and takes no samples, because with it a step would be longer."""

    step: Count
    machine: str
    reason: str
    samples_per_s: Number  # predicted without it
    samples_per_s_with_it: Number


class MachineUnbenched(Event, frozen=True, tag="machine_unbenched"):
    """A benched machine takes part again."""

    step: Count
    machine: str
    reason: str


class GroupChanged(Event, frozen=True, tag="group_changed"):
    """Machines joined or left the group since the step before. Every worker that trained before and after tells it."""

    step: Count  # the first step that the changed group committed
    num_machines: Count  # that go on
    reason: Literal["joined", "stopped", "lost"]  # stopped: who left had said so in its last step
    stall_s: Number  # from the commit before the change to the first one after it
    joined: dict[str, list[str]] = {}  # by machine: its workers, where others of that machine were there; else none
    left: dict[str, list[str]] = {}  # by machine: its workers, where others of that machine stay; else none
    quorum_id: Whole = 0  # torchft's; 0 where it is not known


class EpochEnded(Event, frozen=True, tag="epoch_ended"):
    """Every sample of the epoch has counted once, but for those of batches that the script left out."""

    epoch: Count
    step: Count
    samples: Count
    loss: Number | None
    seconds: Number
    left_out: Count = 0  # batches: the script left the loader's loop early


class MetricsLogged(Event, frozen=True, tag="metrics_logged"):
    """Numbers that the training script wants kept."""

    step: Count
    values: dict[str, Number | None]


class LossDiverged(Event, frozen=True, tag="loss_diverged"):
    """The loss is not a number, or has been far above that of the first steps for long. Told once a process."""

    step: Count  # since when
    loss: float | None  # None: not a number
    limit: float | None = None  # a loss at or below it has recovered; None: any number has


class Evaluated(Event, frozen=True, tag="evaluated"):
    """Exact means over a dataset."""

    step: Count
    name: str
    samples: Count
    values: dict[str, Number | None]
    seconds: Number


class CheckpointSaved(Event, frozen=True, tag="checkpoint_saved"):
    """A whole checkpoint is on disk under its final name."""

    step: Count
    file: str
    num_bytes: Count
    seconds: Number


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at a moment; None where the driver does not say."""

    name: str
    busy: Number | None = None  # of the time, 0 to 1
    memory_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_w: Number | None = None


class MachineUsed(Event, frozen=True, tag="machine_used"):
    """How busy a worker's machine is, every few seconds: all of it, not only this run."""

    cpu: Number  # of all cores, 0 to 1, since the one before
    memory_bytes: Count
    memory_total_bytes: Count
    sent_bytes_per_s: Number
    received_bytes_per_s: Number
    gpus: list[GpuUse] = []
    address: str = ""  # on the way to the other workers, if this one has sent them much
    sending_bytes_per_s: dict[str, Number] = {}  # by their addresses, while there was something to send


class Waiting(Event, frozen=True, tag="waiting"):
    """A worker has waited long for others since its last step; told again while the wait lasts."""

    step: int  # the last one that is committed
    seconds: float  # waited since then
    what: str  # "group": until one forms; "gradients": the others'; "evaluation": the others' part of it
    unreachable: dict[str, str] = {}  # machines whose port for gradients cannot be dialled, and what dialling met
    problem: str = ""  # what the last try to form a group ended with


class Notice(Event, frozen=True, tag="notice"):
    """One line that a person should read."""

    text: str


class LinePrinted(Event, frozen=True, tag="line_printed"):
    """A line that the script prints once for all workers. Each worker tells it; the first to do so is shown."""

    text: str
    step: int
    number: int  # how many such lines this step had before


class RunEnded(Event, frozen=True, tag="run_ended"):
    """The worker process ends in an orderly way."""

    reason: Ending
    step: Count
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
    | GroupChanged
    | EpochEnded
    | MetricsLogged
    | LossDiverged
    | Evaluated
    | CheckpointSaved
    | MachineUsed
    | Waiting
    | Notice
    | LinePrinted
    | RunEnded
)


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of an event file."""

    sequence: Whole
    time: Moment  # this machine's clock, seconds since 1970
    event: AnyEvent
