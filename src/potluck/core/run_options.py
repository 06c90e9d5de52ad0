"""One description of a run: every option with its type, default, limits, help text and panel of `--help`.

`potluck.start` takes the options of RunOptions, `potluck train` those of TrainOptions and CommandOptions. They are
dataclasses, so that `potluck --help` need not import pydantic; core/settings.py checks values against types and limits.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from potluck.core.environment import DEFAULT_PORT

MODEL, DATA, TRAINING, MACHINES, OUTPUT = "Model", "Data", "Training", "Machines", "Output"
PANELS = (MODEL, DATA, TRAINING, MACHINES, OUTPUT)
ENV_HELP = "NAME=VALUE, a variable for every worker on every machine; recorded in run.yaml. May be repeated."
TUNING_HELP = (
    "Each machine finds its fastest way to do the same maths, in the first seconds of its first run with a model."
)
KEEP_HELP = "Machines that take part even if they slow the run: rosa,lily. May be repeated."


def option(
    default: Any, panel: str, help_text: str, *, flags: str = "", is_hidden: bool = False, **limits: float
) -> Any:
    """A field of an options class. `flags`: spellings on the command line, if not --name; `limits`: pydantic's.

    `is_hidden`: `--help` does not show the flag, which is there only for commands written for other programs.
    """
    metadata = {"description": help_text, "panel": panel, "flags": flags, "is_hidden": is_hidden, **limits}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class ExchangeOptions:
    """How machines exchange what they learn: every step exactly, in fewer bytes, or in rounds of many steps."""

    exchange: Literal["exact", "fp16", "int8", "int4", "rounds", "islands", "auto"] = option(
        "exact",
        MACHINES,
        "What machines exchange. exact (default): gradients in fp32 after every step; fp16, int8, int4: the same in "
        "fewer bytes; rounds: weights after many steps; islands: gradients between machines on fast links, weights "
        "between others; auto: the fastest within --loss-price.",
    )
    loss_price: float = option(
        0.0, MACHINES, "For --exchange auto: by how many percent the loss may end higher than with exact.", ge=0, le=100
    )
    round_steps: int | None = option(
        None, MACHINES, "Steps between two exchanges of weights in rounds; chosen from measured links by default.", ge=1
    )
    warm_up_steps: int | None = option(
        None,
        MACHINES,
        "Steps with an exchange each before the first round: by default a sixth of the run and at least 200, a third "
        "of a run of fewer than 1000 steps; 0 for weights that are trained already.",
        ge=0,
    )
    islands: str | None = option(
        None,
        MACHINES,
        "For --exchange islands: machines with fast links to each other, as rosa+lily,fern+moss; a machine that is not "
        "named is an island of its own.",
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(ExchangeOptions):
    """Options of every run, whether a script calls `potluck.start` or `potluck train` runs a built-in model."""

    seed: int = option(0, TRAINING, "Seed of the data order and of all random draws.", ge=0)
    mixed_precision: Literal["no", "fp16", "bf16"] = option("no", TRAINING, "Number format of the forward pass.")
    gradient_checkpointing: bool = option(
        False,
        TRAINING,
        "Less memory for more computing.",
        flags="--gradient-checkpointing/--no-gradient-checkpointing",
    )
    micro_batch: int | None = option(
        None, TRAINING, "The most samples at once in memory; the result stays the same.", ge=1
    )
    tuning: bool = option(
        True,
        MACHINES,
        TUNING_HELP,
        flags="--tuning/--no-tuning",
    )
    device: str | None = option(None, MACHINES, "cpu, cuda, cuda:1; a GPU is used by default if there is one.")
    load_balance_policy: Literal["static", "proportional", "dynamic"] = option(
        "dynamic", MACHINES, "dynamic: by live timings (default); proportional: by speed; static: equally."
    )
    keep: tuple[str, ...] = option((), MACHINES, KEEP_HELP)
    backend: Literal["auto", "gloo", "nccl"] = option(
        "auto", MACHINES, "gloo or nccl; auto (default) is nccl if every worker has its own CUDA device, else gloo."
    )
    master_addr: str | None = option(None, MACHINES, "Where worker 0 is met, with RANK and WORLD_SIZE set.")
    master_port: int | None = option(None, MACHINES, f"The port for --master-addr ({DEFAULT_PORT}).", ge=1, le=65535)
    enable_profiling: bool = option(
        False,
        MACHINES,
        "Measure a machine before its first step, unless it was measured before; trace steps 5 to 8 with "
        "torch.profiler.",
        flags="--enable-profiling/--no-profiling",
    )
    experiment_name: str | None = option(None, OUTPUT, "The run's folder under ./experiments.")
    checkpoint_every: int | None = option(
        None, OUTPUT, "Steps between checkpoints; each epoch ends with one anyway.", ge=1
    )
    keep_checkpoints: int = option(3, OUTPUT, "How many of the last checkpoints stay.", ge=1)
    resume: bool = option(
        False, OUTPUT, "Go on with the run of that name (else the newest), with its settings.", flags="--resume"
    )
    resume_from: Path | None = option(None, OUTPUT, "Begin with the state in this checkpoint file.")

    @property
    def master(self) -> tuple[str, int] | None:
        """Address and port at which workers meet worker 0, if given."""
        return None if self.master_addr is None else (self.master_addr, self.master_port or DEFAULT_PORT)


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """Which built-in model is trained, and on which data."""

    model: str = option("simple_cnn", MODEL, "simple_cnn (default), resnet18, resnet50, bert or gpt2.")
    model_size: str | None = option(None, MODEL, "The model's size, smallest first: tiny, small, base.")
    dataset: str | None = option(
        None,
        DATA,
        "cifar10, cifar100, synthetic_image, synthetic_text or text; synthetic data of the model's kind by default.",
    )
    data_dir: Path | None = option(None, DATA, "Where data is kept (./data); for text: your file or folder of .txt.")
    num_samples: int | None = option(None, DATA, "Training samples; all of them by default.", ge=1)
    loader_workers: int = option(0, DATA, "Processes that read data ahead.", ge=0)


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """How long a built-in model is trained, and with which optimizer."""

    global_batch: int | None = option(None, TRAINING, "Samples a step, over all workers (64).", ge=1)
    batch_size: int | None = option(None, TRAINING, "Samples a step a worker, instead of --global-batch.", ge=1)
    epochs: int = option(2, TRAINING, "Passes over the data.", ge=1)
    max_steps: int | None = option(None, TRAINING, "End after this many steps, if that is sooner.", ge=1)
    optimizer: Literal["sgd", "adam", "adamw"] = option("sgd", TRAINING, "The optimizer.")
    learning_rate: float | None = option(
        None,
        TRAINING,
        "0.05 for sgd, 0.001 for the others by default.",
        flags="--lr --learning-rate",
        gt=0,
    )
    lr_schedule: Literal["constant", "cosine"] = option("constant", TRAINING, "The learning rate over the steps.")
    momentum: float = option(0.9, TRAINING, "Momentum of sgd.", ge=0, lt=1)
    weight_decay: float = option(0.0, TRAINING, "Weight decay.", ge=0)


@dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions, LearningOptions, WorkloadOptions):
    """Every option of a run in run.yaml and `potluck train`. None: Potluck chooses the value when the run starts."""

    enable_load_balancing: bool = option(
        True,
        MACHINES,
        "Split each batch so that all machines finish together (on).",
        flags="--enable-load-balancing/--no-load-balancing",
    )
    memory_limit: str | None = option(None, MACHINES, "What training may use on the CPU, like 2G; needs profiling.")

    env: tuple[str, ...] = option((), MACHINES, ENV_HELP)

    def but(self, **changes: Any) -> "TrainOptions":
        """A copy with some options changed."""
        return dataclasses.replace(self, **changes)

    def for_start(self) -> dict[str, Any]:
        """These options as keyword arguments of `potluck.start`, without the run's name."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(RunOptions)}
        for name in ("experiment_name", "master_addr", "master_port"):
            del given[name]
        policy = self.load_balance_policy if self.enable_load_balancing else "static"
        return {**given, "load_balance_policy": policy, "master": self.master}


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """Where a command runs and what it reads and writes: not settings of the run, so run.yaml has none of them."""

    solo: bool = option(False, MACHINES, "Train on this machine alone; leave joined machines out.", flags="--solo")
    not_here: bool = option(False, MACHINES, "Train on the other machines, not on this one.", flags="--not-here")
    machines: str | None = option(None, MACHINES, "Only these, by name: rosa,lily. Everyone by default.")
    devices: str | None = option(
        None,
        MACHINES,
        "With --solo, or on a machine that has joined nothing: how many devices train, or which, like cuda:0,cpu; one "
        "worker each.",
    )
    mode: str | None = option(None, MACHINES, "Only ddp, which is what Potluck does.", is_hidden=True)
    direct: bool = option(
        False,
        MACHINES,
        "Gradients go from machine to machine in the open, not through the gates: for networks above 1 Gbit/s that "
        "you trust.",
        flags="--direct",
    )
    log_to: str | None = option(
        None, OUTPUT, "Also tensorboard, mlflow or wandb: one run of all machines, written here."
    )
    config: Path | None = option(None, OUTPUT, "A YAML file with any of these settings, for example a run's run.yaml.")
