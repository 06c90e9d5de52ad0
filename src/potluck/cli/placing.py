"""Where a run trains: on the machines that have joined the host, or on this machine if it has joined none."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from potluck.core.errors import MeetingError, SettingsError
from potluck.core.machine_names import read_machine_names
from potluck.core.run_options import CommandOptions
from potluck.core.shell_words import quote

if TYPE_CHECKING:
    from potluck.core.exchange_options import ExchangeValue
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import HostMembership
    from potluck.meeting.wire import RunRequest, RunTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """On which machines a run trains, and whether gradients go directly between them or through their gates."""

    machines: str | None = None
    not_here: bool = False
    is_direct: bool = False
    devices: str | None = None

    @classmethod
    def of(cls, command: CommandOptions) -> "Placement":
        return cls(
            machines=command.machines,
            not_here=command.not_here,
            is_direct=command.direct,
            devices=command.devices,
        )

    @property
    def names_machines(self) -> bool:
        """Whether something was chosen that only several machines have."""
        return self.machines is not None or self.not_here or self.is_direct

    def request(
        self, task: "RunTask", here: str, *, name: str | None = None, resume: bool = False, state: str | None = None
    ) -> "RunRequest":
        """The request to start the run, which the machine named `here` sends to the host."""
        from potluck.meeting.wire import RunRequest

        chosen = None if self.machines is None else read_machine_names([self.machines], "--machines")
        if chosen == []:
            raise SettingsError("--machines names no machine", fix="name some: --machines rosa,lily; or leave it out")
        without = [here] if self.not_here else []
        return RunRequest(
            name=name,
            resume=resume,
            task=task,
            machines=chosen,
            without=without,
            is_direct=self.is_direct,
            state=state,
        )


def joined_host(home_dir: Path) -> "HostMembership | None":
    """The host that this machine has joined, if its agent, or the host itself, runs on this machine now; else None."""
    if not (home_dir / "joined.json").is_file():
        return None
    from potluck.meeting.home import Home

    home = Home(home_dir)
    return home.membership() if home.is_joined_now() else None


def check_mode(mode: str | None) -> None:
    """Refuse a `--mode` other than ddp: commands that were written for other programs have it."""
    if mode not in (None, "ddp"):
        raise SettingsError(
            f"--mode {mode} is not known: Potluck trains like DDP, with the whole model on every device",
            fix="leave --mode out",
        )


def check_devices_are_here(devices: str | None) -> None:
    """Refuse `--devices` for a run on joined machines: each machine said when it joined what trains there."""
    if devices is not None:
        raise SettingsError(
            "--devices chooses devices of this machine, but the run is for all joined machines",
            fix=f"train here alone: --solo --devices {quote(devices)}; or join again with: potluck join --devices "
            f"{quote(devices)}",
        )


def run_solo(
    script: Path,
    arguments: list[str],
    name: str | None,
    env: list[str],
    exchange: "dict[str, ExchangeValue]",
    *,
    resume: bool,
    devices: str | None = None,
) -> NoReturn:
    """Replace this process by `python script`, which trains on this machine alone and prints progress to stderr.

    With several `devices`, this process stays and runs the script once on each of them.
    """
    import os

    from potluck.cli.several_devices import train_on_each
    from potluck.core.environment import read_environment, solo_variables, with_variables
    from potluck.core.run_folder import check_run_name, find_run_folder
    from potluck.core.run_variables import parse_variables
    from potluck.core.settings import recorded_exchange, recorded_variables
    from potluck.machine.device_list import read_devices

    if resume and name is None:
        raise SettingsError("--resume needs to know which run", fix="name it: --experiment-name NAME")
    if name is not None:
        check_run_name(name)
    if resume and name is not None:
        folder = find_run_folder(read_environment().runs_dir, name, to_resume=True)
        env = env or recorded_variables(folder)
        exchange = {**recorded_exchange(folder), **exchange}
    chosen = [] if devices is None else read_devices(devices)
    command = [str(script), *arguments]
    variables = solo_variables(name, parse_variables(env), exchange, resume=resume)
    if len(chosen) > 1:
        sys.exit(train_on_each(command, chosen, variables))
    sys.stdout.flush()
    placed = with_variables({**variables, **({"POTLUCK_DEVICE": chosen[0]} if chosen else {})})
    os.execve(sys.executable, [sys.executable, *command], placed)  # noqa: S606  no shell is the point


def train_together(
    layers: list[dict[str, Any]], home_dir: Path, placement: Placement, log_to: str | None = None
) -> int | None:
    """Start the run on the cluster, follow it, return its exit code; None if this machine has joined no host."""
    if joined_host(home_dir) is None:
        if placement.names_machines:
            raise MeetingError(
                "this machine has not joined a host, so there are no other machines",
                fix="join one with the line that potluck host prints, or leave --not-here, --machines and --direct out",
            )
        return None
    check_devices_are_here(placement.devices)
    from potluck.cli.following import follow_run
    from potluck.cli.sharing import share_data_dir
    from potluck.core.settings import given_values
    from potluck.meeting.client.cluster import ClusterClient
    from potluck.meeting.home import Home
    from potluck.meeting.wire import RunTask
    from potluck.report.outlets import check_outlet

    check_outlet(log_to)
    asked = given_values(layers)
    with ClusterClient(Home(home_dir)) as cluster:
        state = _send_state(cluster, Path(asked["resume_from"])) if asked.get("resume_from") else None
        here = cluster.membership.machine
        shared = share_data_dir(cluster, Home(home_dir), asked.get("data_dir"), print)
        started = cluster.start(placement.request(RunTask(settings=asked, data=shared), here, state=state))
        return follow_run(cluster, started, log_to)


def _send_state(cluster: "ClusterClient", path: Path) -> str:
    """Send the file of --resume-from, which is on this machine, to the host; returns its hash."""
    from potluck.cli.saying import warn
    from potluck.engine.checkpoints.checkpoint_file import check_whole

    check_whole(path)
    warn(f"sending {path} ({path.stat().st_size / 1e6:,.1f} MB) to {cluster.membership.host}, for all machines")
    return cluster.send_state(path)
