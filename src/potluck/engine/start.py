"""`potluck.start`: turns its keywords into RunOptions, and these into the parts of a Run."""

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from potluck.core.checkpoint_names import checkpoint_files
from potluck.core.environment import Environment, Launch, read_environment, read_launch, read_run_variables
from potluck.core.errors import SettingsError
from potluck.core.exchange_options import EXCHANGE_VARIABLES, check_exchange_options
from potluck.core.run_folder import RunFolder
from potluck.core.run_options import ExchangeOptions, RunOptions
from potluck.core.version import __version__
from potluck.engine.balance.balance import Balance, Wishes
from potluck.engine.balance.profile_memory import ProfileMemory
from potluck.engine.checkpoints.checkpoints import CheckpointWriter
from potluck.engine.compute.device import card_id, card_label, choose_device, use_threads
from potluck.engine.compute.precision import Precision
from potluck.engine.group.protocol import RunGroup
from potluck.engine.group.solo import SoloGroup
from potluck.engine.opening import claim_folder, read_state, record_settings
from potluck.engine.order.seeding import seed_all
from potluck.engine.run import Run
from potluck.engine.steps.journal import Journal, Watcher
from potluck.engine.steps.parts import RunParts
from potluck.engine.steps.tracing import StepTracer
from potluck.engine.telling import LinePrinter, MachineTeller, ScriptTeller, who_shows_what
from potluck.events.log import EventLog
from potluck.events.types import RunStarted
from potluck.gates.exposing import GateLine
from potluck.machine.hardware import quota_threads
from potluck.machine.usage import UsageMeter
from potluck.measuring.step_timer import StepTimer


def start(
    name: str | None = None,
    *,
    seed: int = 0,
    device: str | None = None,
    mixed_precision: str = "no",
    gradient_checkpointing: bool = False,
    micro_batch: int | None = None,
    checkpoint_every: int | None = None,
    keep_checkpoints: int = 3,
    resume: bool = False,
    resume_from: str | Path | None = None,
    runs_dir: str | Path | None = None,
    backend: str = "auto",
    load_balance_policy: str = "dynamic",
    keep: Sequence[str] = (),
    exchange: str = "exact",
    loss_price: float = 0.0,
    round_steps: int | None = None,
    warm_up_steps: int | None = None,
    islands: str | None = None,
    tuning: bool = True,
    enable_profiling: bool = False,
    profile_name: str | None = None,
    master: tuple[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    watch: Watcher | None = None,
    quiet: bool = False,
) -> Run:
    """Join the run that this process was launched for, or start a run of this process alone.

    name: the run's folder under runs_dir (./experiments); by default the script's name and a free number.
    seed: the seed of the data order and of every random draw inside the training loop.
    micro_batch: the most samples in a pass through the model; by default the whole share, unless less is known to fit.
    checkpoint_every: steps between checkpoints inside an epoch; every epoch ends with one anyway.
    resume: continue from the newest undamaged checkpoint of the run called `name`, if it has one.
    resume_from: begin with the state in this checkpoint file.
    backend: gloo, nccl, or auto: NCCL if every worker has its own CUDA device and the same NCCL, else Gloo.
    load_balance_policy: dynamic splits by live timings, proportional by speed, static equally.
    tuning: let each machine find its fastest way to do the same maths, once a model; POTLUCK_TUNING=0 forbids it.
    enable_profiling: record steps 5 to 8 of each worker with torch.profiler, as files in the folder's traces/.
    profile_name: the name under which this model's speed is stored; by default a digest of its parameters.
    keep: machines that take part even if the run would be faster without them.
    exchange: exact (gradients in fp32), fp16, int8, int4 (in fewer bytes), rounds, islands or auto.
    loss_price: for exchange="auto", by how many percent the loss may end higher than with exact.
    round_steps: steps between two exchanges of weights in rounds; by default chosen from measured links.
    warm_up_steps: steps before the first round; by default a sixth of the run and at least 200, or a third of a run of
        fewer than 1000 steps.
    islands: for exchange="islands", machines with fast links to each other: rosa+lily,fern+moss.
    master: address and port where the workers meet worker 0; by default MASTER_ADDR and MASTER_PORT.
    settings: the content of run.yaml; by default the command line and some of these arguments.
    watch: called with every event and the state after the event; by default a few lines on stderr show progress.
    quiet: print only notices on stderr; POTLUCK_QUIET=1 does the same.
    """
    words: dict[str, Any] = {  # each value is checked where it is used
        "mixed_precision": mixed_precision,
        "backend": backend,
        "load_balance_policy": load_balance_policy,
        **check_exchange_options(
            {
                "exchange": exchange,
                "loss_price": loss_price,
                "round_steps": round_steps,
                "warm_up_steps": warm_up_steps,
                "islands": islands,
            }
        ),
    }
    options = RunOptions(
        experiment_name=name,
        seed=seed,
        device=device,
        gradient_checkpointing=gradient_checkpointing,
        micro_batch=micro_batch,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        resume=resume,
        resume_from=None if resume_from is None else Path(resume_from),
        keep=tuple(keep),
        tuning=tuning,
        enable_profiling=enable_profiling,
        master_addr=None if master is None else master[0],
        master_port=None if master is None else master[1],
        **words,
    )
    for option in ("micro_batch", "checkpoint_every", "keep_checkpoints"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise SettingsError(f"{option} cannot be {value}", fix=f"give {option} a value of at least 1")
    if options.seed < 0:
        raise SettingsError(f"seed cannot be {options.seed}", fix="give seed a value of at least 0")
    environment, launch = read_environment(), read_launch(options.master, quota_threads())
    given: dict[str, Any] = check_exchange_options(dict(launch.exchange), EXCHANGE_VARIABLES.__getitem__)
    options = replace(options, **given, tuning=options.tuning and environment.is_tuning)  # the command's word counts
    tells = watch is None and launch.is_seen and not (quiet or environment.is_quiet)

    def make_watchers(folder: RunFolder) -> list[Watcher]:
        if watch is None and launch.lighthouse is None and not launch.is_seen:
            return [lambda *_: None]  # the machine's first worker prints the same notices
        if not tells:
            return [] if watch is None else [watch]
        return [ScriptTeller(folder.path) if launch.rank == 0 else MachineTeller(folder.path, environment.machine)]

    if tells and launch.rank > 0:
        LinePrinter().write(who_shows_what(environment.machine, launch))
    return _assemble(
        options,
        environment,
        launch,
        runs_dir=environment.runs_dir if runs_dir is None else Path(runs_dir),
        profile_name=profile_name,
        settings=settings,
        make_watchers=make_watchers,
    )


def _assemble(
    options: RunOptions,
    environment: Environment,
    launch: Launch,
    *,
    runs_dir: Path,
    profile_name: str | None,
    settings: Mapping[str, Any] | None,
    make_watchers: Callable[[RunFolder], list[Watcher]],
) -> Run:
    """Make the parts of the run, in the order in which they need each other."""
    wishes = Wishes(
        policy=options.load_balance_policy, keep=(*options.keep, *launch.keep), micro_batch=options.micro_batch
    )
    device = choose_device(options.device, launch.local_rank, launch.device)
    use_threads(launch.num_threads)
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)  # random generators and streams belong to the current device
    precision = Precision(options.mixed_precision, device)
    name, resume = options.experiment_name, options.resume
    if launch.is_alone:
        resume = resume or launch.resume
        launched, folder = None, claim_folder(runs_dir, launch.run or name, resume=resume)
    else:
        # torchft is not needed alone
        from potluck.engine.group.launch import Launched  # noqa: PLC0415
        from potluck.engine.group.place import ExchangeWish  # noqa: PLC0415

        wish = ExchangeWish.of(options)
        launched = Launched(launch, environment.machine, backend=options.backend, device=device, exchange=wish)
        if launch.decides:
            name = claim_folder(runs_dir, launch.run or name, resume=resume or launch.resume).name
        folder = claim_folder(runs_dir, launched.agree_on_name(name), resume=True)
        resume = resume or (launch.resume and bool(checkpoint_files(folder.checkpoints_dir)))
    recorded = dict(settings or _script_settings(options, launch, device))
    record = partial(record_settings, folder, recorded, is_script=not settings)
    log = EventLog(folder.event_file(environment.machine, launch.worker))
    try:
        if not folder.settings_file.exists():  # a resumed run rewrites run.yaml only when training begins
            record()
        journal = Journal(log, folder.metrics_file(launch.worker), make_watchers(folder), _usage_meter(launch))
        journal.emit(
            RunStarted(
                run=folder.name,
                machine=environment.machine,
                worker=launch.worker,
                process_id=os.getpid(),
                device=str(device),
                mixed_precision=options.mixed_precision,
                card=card_label(device),
                card_id=card_id(device),
                versions={"potluck": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
            )
        )
        for note in (*launch.notes, *(() if launched is None else launched.notes)):
            journal.say(note)
        restored = read_state(
            folder,
            journal,
            resume=resume,
            resume_from=options.resume_from,
            newcomer=None if launch.is_alone else environment.machine,
        )
        group: RunGroup = SoloGroup()
        experience = ProfileMemory(
            home=environment.home,
            machine=environment.machine,
            device=str(device),
            precision=options.mixed_precision,
            model=profile_name,
        )
        timer, balance = StepTimer(device), Balance(wishes, journal.emit, experience, journal.show)
        if launched is not None:
            # torchft is not needed alone
            from potluck.engine.group.connection import Connection  # noqa: PLC0415
            from potluck.engine.group.switching import join_others  # noqa: PLC0415

            connection = Connection(
                launched.take_place(folder.log_file(environment.machine, launch.worker)),
                say=journal.say,
                tell=journal.emit,
                leave=launched.leave,
                balance=balance,
                timer=timer,
            )
            group = join_others(connection)
    except BaseException:
        log.close()
        raise
    seed_all(device, options.seed)
    parts = RunParts(
        folder=folder,
        machine=environment.machine,
        device=device,
        precision=precision,
        journal=journal,
        group=group,
        balance=balance,
        timer=timer,
        writer=CheckpointWriter(folder.checkpoints_dir, keep=options.keep_checkpoints),
        restored=restored,
        tracer=_step_tracer(folder, environment, launch, journal) if options.enable_profiling else None,
        record_settings=record,
        has_agent=launch.lighthouse is not None,
    )
    return Run(options, parts)


def _script_settings(options: RunOptions, launch: Launch, device: torch.device) -> dict[str, Any]:
    """The content of run.yaml for a run that a script started."""
    variables = read_run_variables()
    given = check_exchange_options(dict(launch.exchange))
    exchange = {field.name: getattr(options, field.name) for field in fields(ExchangeOptions)}
    return {
        **({"env": variables} if variables else {}),
        **({"command_options": given} if given else {}),
        "script": sys.argv[0],
        "arguments": sys.argv[1:],
        "seed": options.seed,
        "device": str(device),
        "mixed_precision": options.mixed_precision,
        "gradient_checkpointing": options.gradient_checkpointing,
        "micro_batch": options.micro_batch,
        **{name: value for name, value in exchange.items() if value is not None},
    }


def _step_tracer(folder: RunFolder, environment: Environment, launch: Launch, journal: Journal) -> StepTracer:
    return StepTracer(partial(folder.trace_file, environment.machine, launch.worker), journal.emit)


def _usage_meter(launch: Launch) -> UsageMeter:
    """A UsageMeter; a worker behind a gate reads its rates from the gate, because its own traffic ends there."""
    if launch.gate is None or launch.gradient_address is not None:
        return UsageMeter()
    line = GateLine(launch.gate, launch.gate_run)

    def read_rates() -> tuple[str, dict[str, float]]:
        rates = line.rates()
        return ("", {}) if rates is None else (rates.own, rates.sending_bytes_per_s)

    return UsageMeter(read_rates=read_rates)
