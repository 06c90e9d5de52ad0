"""The events of a run. A field may be added with a default; none is renamed or removed.

JSON has no infinity and no NaN: values that a model computes go through `finite`, which turns these into None. Numbers
have bounds, so that sums over events stay finite.
"""

import math
from typing import Annotated, Literal

import msgspec

from potluck.core.states import Ending

MOST = 1e150  # sums and squares of numbers up to here stay finite
Number = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Integers that a float and a 64-bit array hold exactly."""
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
"""Seconds since 1970, up to the year 5138."""


def finite(value: float | None) -> float | None:
    """The number; None if it is missing, NaN, infinite or beyond +-MOST."""
    return value if value is not None and abs(value) <= MOST and not math.isnan(value) else None


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Something that happened to one worker of a run."""


class RunStarted(Event, frozen=True, tag="run_started"):
    """A worker process begins. A resumed run has one such event for each process."""

    run: str
    machine: str
    worker: Count
    process_id: Whole
    device: str
    mixed_precision: str
    versions: dict[str, str]
    card: str = ""  # what people call the device's card: RTX 3070; empty for the CPU, and where it is not known
    card_id: str = ""  # the card's UUID, as in GpuUse

    @property
    def place(self) -> str:
        """The card, or the device where its card is not known."""
        return self.card or self.device


class RunResumed(Event, frozen=True, tag="run_resumed"):
    """This worker has loaded a checkpoint. The group goes on from the newest checkpoint that any of its workers has."""

    step: Count
    checkpoint: str


class ModelPrepared(Event, frozen=True, tag="model_prepared"):
    """The model is on its device and wrapped."""

    num_parameters: Count


class TrainingBegan(Event, frozen=True, tag="training_began"):
    """The script has called run.epochs and run.loader, so the number of steps is known."""

    num_samples: Count
    global_batch: Count
    steps_per_epoch: Count
    num_epochs: Count
    last_step: Count
    left_out: Count = 0  # batches that the script left out before a resume


class StepTiming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One worker's time from one commit to the next, by part; the parts add up to step_s."""

    data_wait_s: Number = 0.0
    compute_s: Number = 0.0
    """Forward, backward and the optimizer."""
    exchange_wait_s: Number = 0.0
    """From this worker's last gradient to the end of the all-reduce: the wait for slower workers, and the network."""
    commit_s: Number = 0.0
    rest_s: Number = 0.0
    """The script's own code, events, checkpoints."""
    retry_s: Number = 0.0
    """Failed attempts at this step, for example because a worker was lost."""

    @property
    def step_s(self) -> float:
        return self.own_s + self.exchange_wait_s + self.retry_s

    @property
    def own_s(self) -> float:
        """The worker's own time between two all-reduces, without waiting for others; plans make it equal for all."""
        return self.data_wait_s + self.compute_s + self.commit_s + self.rest_s


class StepCommitted(Event, frozen=True, tag="step_committed", gc=False):
    """One optimizer step is done: samples and loss are those of the whole global batch."""

    step: Count
    epoch: Count
    samples: Count
    loss: Number | None
    seconds: Number
    own_samples: Count = 0  # of this worker
    # In one quorum, the own_samples of all workers add up to the global batch. Its key stays that of older files.
    quorum_id: Whole = msgspec.field(default=0, name="formation")
    skipped: bool = False  # fp16 gradients overflowed: the scale was lowered and no parameter changed
    timing: StepTiming | None = None
    traced: bool = False  # slowed down by torch.profiler: no fit and no account uses its timing


class PlanChanged(Event, frozen=True, tag="plan_changed"):
    """The split of the global batch from `step` on. Every worker computes the same plan and writes this event."""

    step: Count  # the first step that is trained with this plan
    policy: str
    shares: dict[str, Whole]  # by worker
    reason: str  # empty if the split stays and only the predictions are newer
    step_s: Number  # predicted, like samples_per_s
    samples_per_s: Number
    error: Number = 0.0  # relative error of the prediction
    solo_samples_per_s: dict[str, Number] = {}  # by worker: its estimated speed when it trains alone
    machines: dict[str, str] = {}  # by worker
    slowest_link: str = ""  # the machine whose link is clearly slower than all others; empty if there is none

    def replaces(self, shares: dict[str, Whole]) -> bool:
        """Whether this plan changes the split `shares`; a plan without a reason only brings newer predictions."""
        return bool(self.reason) and self.shares != shares


class MachineBenched(Event, frozen=True, tag="machine_benched"):
    """A machine stays joined but takes no samples, because every step would take longer with it."""

    step: Count
    machine: str
    reason: str
    samples_per_s: Number  # predicted without the machine
    samples_per_s_with_it: Number


class MachineUnbenched(Event, frozen=True, tag="machine_unbenched"):
    """A benched machine takes part again."""

    step: Count
    machine: str
    reason: str


class GroupChanged(Event, frozen=True, tag="group_changed"):
    """Machines joined or left the group since the last step. Every worker in both groups writes this event."""

    step: Count  # the first step that the changed group committed
    num_machines: Count  # in the changed group
    reason: Literal["joined", "stopped", "lost"]  # stopped: a worker announced in its last step that it leaves
    stall_s: Number  # from the commit before the change to the first one after it
    joined: dict[str, list[str]] = {}  # by machine: the new workers if the machine had others before, else empty
    left: dict[str, list[str]] = {}  # by machine: the workers that left if others of the machine stay, else empty
    quorum_id: Whole = 0  # torchft's; 0 if it is not known


class BackendChosen(Event, frozen=True, tag="backend_chosen"):
    """How a group exchanges gradients, and why. Each worker writes it when this has changed, or when it is new."""

    step: Count  # the first step that was committed so
    backend: str  # gloo or nccl
    reason: str
    through_host: bool = False  # gradients of an accelerator are copied to host memory for Gloo
    held_back_by: list[str] = []  # machines without which all other workers could use NCCL
    variables: dict[str, str] = {}  # NCCL's variables in this worker, by name; only with nccl
    defaults: list[str] = []  # the names among them that Potluck has set, because the user had not
    exchange: str = "exact"  # exact, fp16, int8, int4, rounds or islands
    exchange_reason: str = ""  # why, where Potluck chose it
    warm_up_steps: Count = 0  # steps before the first round
    islands: list[list[str]] = []  # machines that exchange gradients in every step of a round


class EpochEnded(Event, frozen=True, tag="epoch_ended"):
    """The epoch is over: each of its samples has counted once, except in batches that the script left out."""

    epoch: Count
    step: Count
    samples: Count
    loss: Number | None
    seconds: Number
    left_out: Count = 0  # batches that were not trained because the script left the loader's loop early


class MetricsLogged(Event, frozen=True, tag="metrics_logged"):
    """Numbers that the training script gave to run.log."""

    step: Count
    values: dict[str, Number | None]


class LossDiverged(Event, frozen=True, tag="loss_diverged"):
    """The loss is not a number, or has long been far above that of the first steps. Each process writes it once."""

    step: Count  # the first one with such a loss
    loss: Number | None  # None: not a number
    limit: Number | None = None  # a loss at or below this limit has recovered; None: any loss that is a number has


class Evaluated(Event, frozen=True, tag="evaluated"):
    """The exact means over a dataset that run.evaluate returned."""

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


class OperatorCost(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of operator in a mean traced step of one worker."""

    name: str
    on_device: bool = False  # a kernel or copy of the accelerator, which runs beside the operators of the CPU
    calls: Number
    seconds: Number  # without the operators that it calls


class StepsTraced(Event, frozen=True, tag="steps_traced"):
    """torch.profiler has recorded these steps of this worker."""

    first_step: Count
    last_step: Count
    file: str = ""  # below the run's folder; empty if it was left out
    num_bytes: Count = 0
    left_out: str = ""  # why there is no file
    operators: list[OperatorCost] = []


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one GPU at a moment; None where the driver does not report a value."""

    name: str
    id: str = ""  # the card's UUID, as in RunStarted
    busy: Number | None = None  # fraction of the time, 0 to 1
    memory_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_w: Number | None = None


class MachineUsed(Event, frozen=True, tag="machine_used"):
    """The load of a worker's whole machine, not only of this run; written every few seconds."""

    cpu: Number  # fraction of all cores, 0 to 1, since the last such event
    memory_bytes: Count
    memory_total_bytes: Count
    sent_bytes_per_s: Number
    received_bytes_per_s: Number
    gpus: list[GpuUse] = []
    address: str = ""  # this machine's, as sending_bytes_per_s of its peers names it; empty if it is not known
    seconds: Number = 0.0  # since the last such event, or since the worker started
    cpu_power_w: Number | None = None  # of the processors; None where the system does not tell
    sending_bytes_per_s: dict[str, Number] = {}  # by the peer's address, counting only time with something to send


class WorkersUsed(Event, frozen=True, tag="workers_used"):
    """What the workers of a plain run and their machine have used since the run began, measured from outside.

    Their script does not use Potluck, so nothing is known of its steps. Each such event replaces the one before.
    """

    seconds: Number
    cores: Number  # that this machine may use
    workers_cpu_s: Number  # seconds of processor time: of the workers here, what they started, and of agent and gate
    machine_cpu_s: Number | None  # the same of the whole machine; None in a container that may use only a part of it
    sent_bytes: Count  # by this machine, over all interfaces but loopback
    received_bytes: Count
    gpus: list[GpuUse] = []  # means over the run
    folder: str = ""  # of the script, on this machine
    files: list[str] = []  # that the script has written there, the newest few; known when it has ended


class Waiting(Event, frozen=True, tag="waiting"):
    """A worker has waited long for other workers since its last step; written again while the wait lasts."""

    step: Count  # the last committed step
    seconds: Number  # waited since that step
    what: str  # "group": for a group to form; "gradients" or "evaluation": for the other workers' part of it
    unreachable: dict[str, str] = {}  # machines whose port for gradients cannot be dialled, and the error
    problem: str = ""  # why the last attempt to form a group failed


class Notice(Event, frozen=True, tag="notice"):
    """One line that a person should read."""

    text: str


class LinePrinted(Event, frozen=True, tag="line_printed"):
    """A line that the script gave to run.print. Every worker writes this event; displays show the line once."""

    text: str
    step: Count
    number: Count  # how many such lines came before it at this step


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
    | BackendChosen
    | EpochEnded
    | MetricsLogged
    | LossDiverged
    | Evaluated
    | CheckpointSaved
    | StepsTraced
    | MachineUsed
    | WorkersUsed
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
