"""What the self-test asks of its worker processes, and what they answer: one line of JSON each."""

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """Base of all orders."""


class Describe(Order, frozen=True, kw_only=True, tag="describe"):
    """Say which devices and backends torch has here."""


class Train(Order, frozen=True, kw_only=True, tag="train"):
    """Train the self-test's small model, alone or as one of several workers."""

    run: str
    device: str
    precision: str
    """fp64, fp32, bf16 or fp16."""
    backend: str = "gloo"
    policy: str = "static"
    machine: str = "here"
    epochs: int = 2
    pause_s: float = 0.0
    """Pause after every step of a run in which a worker is killed: the run must not end before."""
    wait_s: float = 0.0
    """Pause after every step as long as a worker of the group is missing."""
    scratch_bytes: int = 0
    """With n samples at once, the model needs n * n * n times this memory: on any device some micro-batch fits not."""
    variables: dict[str, str] = {}


class TimeSteps(Order, frozen=True, kw_only=True, tag="time_steps"):
    """Make steps of Potluck and of stock PyTorch in turns, and time both."""

    run: str
    device: str
    seconds: float
    """How long to measure, about."""
    batch: int = 0
    """Samples a worker; 0: as many as make a step of the usual length."""
    rank: int = 0
    num_workers: int = 1
    """1: stock PyTorch is a plain loop; more: it is DistributedDataParallel."""
    port: int = 0
    backend: str = "gloo"
    machine: str = "here"
    variables: dict[str, str] = {}


class ChooseBatch(Order, frozen=True, kw_only=True, tag="choose_batch"):
    """Find how many samples make a step of the usual length on a device."""

    device: str
    variables: dict[str, str] = {}


class Sweep(Order, frozen=True, kw_only=True, tag="sweep"):
    """All-reduce messages of several sizes with other worker processes; check the sum and time it."""

    rank: int
    num_workers: int
    port: int
    backend: str
    device: str


class Described(msgspec.Struct, frozen=True, kw_only=True, tag="described"):
    """Torch's devices and backends."""

    devices: tuple[str, ...]
    """Accelerators, without the CPU."""
    backends: tuple[str, ...]
    has_float64: bool
    """Whether the accelerators compute in float64."""
    versions: dict[str, str]
    num_threads: int


class Trained(msgspec.Struct, frozen=True, kw_only=True, tag="trained"):
    """The result of a Train order."""

    parameters: tuple[float, ...]
    shares: tuple[int, ...]
    """This worker's samples of each step that it committed."""
    did_not_fit: tuple[int, ...] = ()
    """Micro-batches for which the device's memory was too small, in this order."""
    micro_batch: int = 0
    """The largest micro-batch that was used in the end."""
    seconds: float


class StepsTimed(msgspec.Struct, frozen=True, kw_only=True, tag="timed"):
    """Seconds of each step, of Potluck and of stock PyTorch, made in turns."""

    potluck_s: tuple[float, ...]
    stock_s: tuple[float, ...]
    batch: int


class BatchChosen(msgspec.Struct, frozen=True, kw_only=True, tag="batch_chosen"):
    """The answer to ChooseBatch."""

    batch: int


class Swept(msgspec.Struct, frozen=True, kw_only=True, tag="swept"):
    """Median seconds of an all-reduce by the message's bytes, and whether every sum was right."""

    seconds: dict[int, float]
    is_sum_right: bool
    wrong: str = ""
    """What was wrong with the sum."""


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag="unavailable"):
    """Stock PyTorch cannot do this on this device, so there is nothing to compare Potluck with."""

    why: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """The order ended with an error."""

    error: str
    fix: str = ""


AnyOrder = Describe | Train | TimeSteps | ChooseBatch | Sweep
Result = Described | Trained | StepsTimed | BatchChosen | Swept | Unavailable
AnyAnswer = Result | Failed
