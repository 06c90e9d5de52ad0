"""Starting a run: its folder, its device, and the state it goes on from."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from potluck.core.atomic import write_text
from potluck.core.environment import Launch, read_environment, read_launch
from potluck.core.errors import SettingsError
from potluck.core.run_folder import RunFolder, check_run_name, create_run_folder, free_run_name
from potluck.core.version import __version__
from potluck.engine.balance import Balance, Wishes
from potluck.engine.checkpoint_file import read_checkpoint
from potluck.engine.checkpoints import CheckpointWriter, checkpoint_files, newest_whole
from potluck.engine.device import choose_device, use_threads
from potluck.engine.experience import Experience
from potluck.engine.group import Alone, Group
from potluck.engine.journal import Journal, Watcher
from potluck.engine.precision import Precision
from potluck.engine.run import Run
from potluck.engine.seeding import seed_all
from potluck.engine.state import check_state
from potluck.events.log import EventLog, read_records
from potluck.events.state import replay
from potluck.events.types import RunResumed, RunStarted
from potluck.gates.exposing import GateLine
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
    profile_name: str | None = None,
    master: tuple[str, int] | None = None,
    settings: Mapping[str, Any] | None = None,
    watch: Watcher | None = None,
) -> Run:
    """The run that this process was launched in, or a run of one.

    name: the run's folder under runs_dir (./experiments); without one, the script's name and a free number.
    seed: of the data order and of every random draw inside the training loop.
    micro_batch: the most samples that go through the model at once; None means a step's whole part.
    checkpoint_every: steps between checkpoints inside an epoch; every epoch ends with one anyway.
    resume: go on from the newest whole checkpoint of the run of that name, if it has one.
    resume_from: begin with the state in this checkpoint file.
    backend: gloo, nccl, or auto: NCCL if all workers have the same, else Gloo.
    load_balance_policy: dynamic splits by live timings, proportional by speed, static equally.
    profile_name: what this model's speed is remembered under; without it, a digest of its parameters.
    keep: machines that take part even if the run would be faster without them.
    master: address and port where worker 0 is met, if not MASTER_ADDR and MASTER_PORT.
    settings: what run.yaml records; without it, these arguments.
    watch: called with every event and the state after it; without it, notices go to stderr.
    """
    for argument, value in {
        "micro_batch": micro_batch,
        "checkpoint_every": checkpoint_every,
        "keep_checkpoints": keep_checkpoints,
    }.items():
        if value is not None and value < 1:
            raise SettingsError(f"{argument} cannot be {value}", fix=f"give {argument} a value of at least 1")
    wishes = Wishes(policy=load_balance_policy, keep=tuple(keep), micro_batch=micro_batch)
    environment, launch = read_environment(), read_launch(master)
    chosen = choose_device(device or launch.device, launch.local_rank)
    use_threads(launch.num_threads)
    if chosen.type != "cpu" and chosen.index is not None:
        torch.accelerator.set_device_index(chosen.index)  # random generators and streams are those of the current one
    precision = Precision(mixed_precision, chosen)
    parent = environment.runs_dir if runs_dir is None else Path(runs_dir)
    if launch.is_alone:
        launched, folder = None, _claim_folder(parent, name, resume=resume)
    else:
        from potluck.engine.launch import Launched  # noqa: PLC0415  torchft is not needed alone

        if launch.decides:
            name = _claim_folder(parent, name, resume=resume).name
        launched = Launched(launch, environment.machine, backend=backend, device=chosen)
        folder = _claim_folder(parent, launched.agree_on_name(name), resume=True)
        resume = resume or (launch.resume and bool(checkpoint_files(folder.checkpoints_dir)))
    recorded = settings or {
        "script": sys.argv[0],
        "seed": seed,
        "device": str(chosen),
        "mixed_precision": mixed_precision,
        "gradient_checkpointing": gradient_checkpointing,
        "micro_batch": micro_batch,
    }

    def record_settings() -> None:
        write_text(folder.settings_file, yaml.safe_dump(dict(recorded), sort_keys=False))

    log = EventLog(folder.event_file(environment.machine, launch.worker))
    try:
        if not folder.settings_file.exists():  # a resumed run's settings change when it is sure to go on
            record_settings()
        watchers = [] if watch is None else [watch]
        journal = Journal(log, folder.metrics_file(launch.worker), watchers, _usage_meter(launch))
        journal.emit(
            RunStarted(
                run=folder.name,
                machine=environment.machine,
                worker=launch.worker,
                process_id=os.getpid(),
                device=str(chosen),
                mixed_precision=mixed_precision,
                versions={"potluck": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
            )
        )
        restored = _restore(folder, journal, resume=resume, resume_from=resume_from)
        group: Group = Alone()
        experience = Experience(
            home=environment.home,
            machine=environment.machine,
            device=str(chosen),
            precision=mixed_precision,
            model=profile_name,
        )
        timer, balance = StepTimer(chosen), Balance(wishes, journal.emit, experience)
        if launched is not None:
            log_file = folder.log_file(environment.machine, launch.worker)
            group = launched.join(journal.say, log_file, balance, timer)
    except BaseException:
        log.close()
        raise
    seed_all(chosen, seed)
    return Run(
        folder,
        journal=journal,
        group=group,
        device=chosen,
        precision=precision,
        writer=CheckpointWriter(folder.checkpoints_dir, keep=keep_checkpoints),
        timer=timer,
        balance=balance,
        machine=environment.machine,
        seed=seed,
        gradient_checkpointing=gradient_checkpointing,
        micro_batch=micro_batch,
        checkpoint_every=checkpoint_every,
        restored=restored,
        record_settings=record_settings,
    )


def _usage_meter(launch: Launch) -> UsageMeter:
    """A worker behind a gate sees only the way to the gate; how fast the links are, the gate knows."""
    if launch.gate is None or launch.gradient_address is not None:
        return UsageMeter()
    line = GateLine(launch.gate, launch.gate_run)

    def read_rates() -> tuple[str, dict[str, float]]:
        rates = line.rates()
        return ("", {}) if rates is None else (rates.own, rates.sending_bytes_per_s)

    return UsageMeter(read_rates=read_rates)


def _claim_folder(runs_dir: Path, name: str | None, *, resume: bool) -> RunFolder:
    if name is None:
        if resume:
            raise SettingsError("resume needs to know which run", fix="pass the run's name to potluck.start")
        name = free_run_name(runs_dir, Path(sys.argv[0]).stem or "run")
    folder = RunFolder(runs_dir / check_run_name(name))
    if folder.path.is_dir() and (resume or not _has_trained(folder)):
        return folder
    return create_run_folder(runs_dir, name)


def _has_trained(folder: RunFolder) -> bool:
    """Whether anything would be lost or mixed up if another run began here."""
    if checkpoint_files(folder.checkpoints_dir):
        return True
    return any(replay(read_records(file)).step > 0 for file in folder.event_files())


def _restore(
    folder: RunFolder, journal: Journal, *, resume: bool, resume_from: str | Path | None
) -> dict[str, Any] | None:
    path = newest_whole(folder.checkpoints_dir, journal.say) if resume else None
    if path is None and resume_from is not None:
        path = Path(resume_from)
    if path is None:
        if resume:
            journal.say(f"{folder.path} has no whole checkpoint: training begins at step 0")
        return None
    state = check_state(read_checkpoint(path), str(path))
    journal.emit(RunResumed(step=int(state["step"]), checkpoint=path.name))
    journal.say(f"going on after step {state['step']} from {path}")
    return state
