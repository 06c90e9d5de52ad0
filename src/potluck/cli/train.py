"""potluck train: train a built-in model on a built-in dataset."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from potluck.report.account import Account

DATA = "Model and data"
LENGTH = "Batches and length"
LEARNING = "Learning"
DEVICE = "Device and memory"
RUN = "The run"
TOGETHER = "Several workers"
MACHINES = "Machines"
PLACEMENT = ("solo", "not_here", "machines", "direct")
_NOT_SETTINGS = ("config", "log_to", *PLACEMENT)


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:  # noqa: A002  typer's own word
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **more)


def train(
    context: typer.Context,
    model: Annotated[
        str | None, _option("--model", panel=DATA, help="simple_cnn (default), resnet18, resnet50, bert or gpt2.")
    ] = None,
    model_size: Annotated[
        str | None, _option("--model-size", panel=DATA, help="The model's size, smallest first: tiny, small, base.")
    ] = None,
    dataset: Annotated[
        str | None,
        _option(
            "--dataset",
            panel=DATA,
            help="cifar10, cifar100, synthetic_image, synthetic_text or text; synthetic data of the model's kind "
            "by default.",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        _option("--data-dir", panel=DATA, help="Where data is kept (./data); for text: your file or folder of .txt."),
    ] = None,
    num_samples: Annotated[
        int | None, _option("--num-samples", panel=DATA, help="Training samples; all of them by default.")
    ] = None,
    global_batch: Annotated[
        int | None, _option("--global-batch", panel=LENGTH, help="Samples a step, over all workers (64).")
    ] = None,
    batch_size: Annotated[
        int | None, _option("--batch-size", panel=LENGTH, help="Samples a step a worker, instead of --global-batch.")
    ] = None,
    micro_batch: Annotated[
        int | None,
        _option("--micro-batch", panel=DEVICE, help="The most samples at once in memory; the result stays the same."),
    ] = None,
    epochs: Annotated[int | None, _option("--epochs", panel=LENGTH, help="Passes over the data (2).")] = None,
    max_steps: Annotated[
        int | None, _option("--max-steps", panel=LENGTH, help="End after this many steps, if that is sooner.")
    ] = None,
    optimizer: Annotated[
        str | None, _option("--optimizer", panel=LEARNING, help="sgd (default), adam or adamw.")
    ] = None,
    learning_rate: Annotated[
        float | None,
        _option("--lr", "--learning-rate", panel=LEARNING, help="0.05 for sgd, 0.001 for the others by default."),
    ] = None,
    lr_schedule: Annotated[
        str | None, _option("--lr-schedule", panel=LEARNING, help="constant (default) or cosine.")
    ] = None,
    momentum: Annotated[float | None, _option("--momentum", panel=LEARNING, help="Momentum of sgd (0.9).")] = None,
    weight_decay: Annotated[float | None, _option("--weight-decay", panel=LEARNING, help="Weight decay (0).")] = None,
    mixed_precision: Annotated[
        str | None, _option("--mixed-precision", panel=DEVICE, help="no (default), fp16 or bf16.")
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None,
        _option(
            "--gradient-checkpointing/--no-gradient-checkpointing",
            panel=DEVICE,
            help="Less memory for more computing.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        _option("--device", panel=DEVICE, help="cpu, cuda, cuda:1; a GPU is used by default if there is one."),
    ] = None,
    loader_workers: Annotated[
        int | None, _option("--loader-workers", panel=DEVICE, help="Processes that read data ahead (0).")
    ] = None,
    seed: Annotated[
        int | None, _option("--seed", panel=LEARNING, help="Of the data order and all random draws (0).")
    ] = None,
    enable_load_balancing: Annotated[
        bool | None,
        _option(
            "--enable-load-balancing/--no-load-balancing",
            panel=TOGETHER,
            help="Split each batch so that all machines finish together (on).",
        ),
    ] = None,
    load_balance_policy: Annotated[
        str | None,
        _option(
            "--load-balance-policy",
            panel=TOGETHER,
            help="dynamic: by live timings (default); proportional: by speed; static: equally.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        _option("--keep", panel=TOGETHER, help="A machine that takes part even if it slows the run. May be repeated."),
    ] = None,
    enable_profiling: Annotated[
        bool | None,
        _option(
            "--enable-profiling/--no-profiling",
            panel=TOGETHER,
            help="Measure this machine before the first step, for a few seconds, unless it was measured before.",
        ),
    ] = None,
    memory_limit: Annotated[
        str | None,
        _option("--memory-limit", panel=DEVICE, help="What training may use on the CPU, like 2G; needs profiling."),
    ] = None,
    backend: Annotated[
        str | None, _option("--backend", panel=TOGETHER, help="gloo or nccl; by default what all workers have.")
    ] = None,
    master_addr: Annotated[
        str | None,
        _option("--master-addr", panel=TOGETHER, help="Where worker 0 is met, with RANK and WORLD_SIZE set."),
    ] = None,
    master_port: Annotated[
        int | None, _option("--master-port", panel=TOGETHER, help="The port for --master-addr (29500).")
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        _option("--checkpoint-every", panel=RUN, help="Steps between checkpoints; each epoch ends with one anyway."),
    ] = None,
    keep_checkpoints: Annotated[
        int | None, _option("--keep-checkpoints", panel=RUN, help="How many of the last checkpoints stay (3).")
    ] = None,
    experiment_name: Annotated[
        str | None, _option("--experiment-name", panel=RUN, help="The run's folder under ./experiments.")
    ] = None,
    log_to: Annotated[
        str | None,
        _option("--log-to", panel=RUN, help="Also tensorboard or mlflow: one run, written here, of all machines."),
    ] = None,
    resume: Annotated[
        bool | None,
        _option("--resume", panel=RUN, help="Go on with the run of that name (else the newest), with its settings."),
    ] = None,
    resume_from: Annotated[
        Path | None, _option("--resume-from", panel=RUN, help="Begin with the state in this checkpoint file.")
    ] = None,
    solo: Annotated[
        bool, _option("--solo", panel=MACHINES, help="Train on this machine alone, whoever has joined.")
    ] = False,
    not_here: Annotated[
        bool, _option("--not-here", panel=MACHINES, help="Train on the other machines, not on this one.")
    ] = False,
    machines: Annotated[
        str | None, _option("--machines", panel=MACHINES, help="Only these, by name: rosa,lily. Everyone by default.")
    ] = None,
    direct: Annotated[
        bool,
        _option(
            "--direct",
            panel=MACHINES,
            help="Gradients go from machine to machine in the open, not through the gates: for networks above "
            "1 Gbit/s that you trust.",
        ),
    ] = False,
    config: Annotated[
        Path | None,
        _option("--config", panel=RUN, help="A YAML file with any of these settings, for example a run's run.yaml."),
    ] = None,
) -> None:
    """Train a built-in model, on every machine that has joined. Ctrl-C stops after the step and saves."""
    from potluck.core.environment import read_environment, read_launch
    from potluck.core.settings import read_settings_file

    given = {name: value for name, value in context.params.items() if value not in (None, [])}
    flags = {name: value for name, value in given.items() if name not in _NOT_SETTINGS}
    layers = [{} if config is None else read_settings_file(config), flags]
    if not solo and read_launch().is_alone:
        from potluck.cli.placing import Placement, train_together

        placement = Placement(machines=machines, not_here=not_here, is_direct=direct)
        code = train_together(layers, read_environment().home, placement, log_to)
        if code is not None:
            raise typer.Exit(code)
    _train_here(layers, log_to)


def _train_here(layers: list[dict[str, Any]], log_to: str | None) -> None:
    """In this process: alone, or as the worker that a launcher has started."""
    import logging
    import sys

    from potluck.cli.display import show_training
    from potluck.core.environment import read_environment, read_launch
    from potluck.core.run_folder import RunFolder, free_run_name
    from potluck.core.settings import check_resumable, resolve
    from potluck.events.state import RunState
    from potluck.events.types import Record
    from potluck.report.outlets import open_outlet

    # A download is the one thing that takes long before the display is up.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("potluck").setLevel(logging.INFO)
    environment, launch = read_environment(), read_launch()
    asked, recorded = resolve(layers, environment.runs_dir)
    if not launch.is_alone:
        from potluck.cli.looking import look_here

        look_here(lambda line: print(line, file=sys.stderr))

    def read_account(state: RunState) -> "Account | None":
        from potluck.report.account_file import write_account

        return write_account(RunFolder(environment.runs_dir / state.run))

    with show_training(is_shown=launch.rank == 0, read_account=read_account) as display:
        from potluck.engine.device import choose_device
        from potluck.workloads.profiling import profile_if_wanted
        from potluck.workloads.trainer import complete, train

        settings = complete(asked, data_dir=environment.data_dir, num_workers=launch.expected)
        if recorded is not None:
            check_resumable(recorded, settings, str(settings.experiment_name))
        if settings.experiment_name is None:
            stem = f"{settings.model}-{settings.dataset}"
            settings = settings.model_copy(update={"experiment_name": free_run_name(environment.runs_dir, stem)})
        chosen = choose_device(settings.device, launch.local_rank)
        profile_if_wanted(settings, environment.home, environment.machine, chosen)
        folder = RunFolder(environment.runs_dir / str(settings.experiment_name))
        with open_outlet(log_to if launch.rank == 0 else None, folder) as outlet:

            def watch(record: Record, state: RunState) -> None:
                display(record, state)
                outlet(record, state)

            train(settings, runs_dir=environment.runs_dir, watch=watch)
