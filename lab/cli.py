"""The lab's command line: python -m lab <verb>."""

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from lab import attach, record, requirements, sweep
from lab.cluster_file import shipped_clusters
from lab.errors import LabError
from lab.lab import Lab
from lab.machine import Machine
from lab.table import Watch, render

LOOK_S = 0.5

app = typer.Typer(
    help="A cluster of unequal machines inside one Linux box.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)
COMMAND = {"ignore_unknown_options": True}

ClusterArgument = Annotated[str, typer.Argument(help=f"A cluster file, or one of {', '.join(shipped_clusters())}.")]
MachineArgument = Annotated[str, typer.Argument(help="A machine of the lab that is up.")]
CommandArgument = Annotated[list[str], typer.Argument(help="The command, after --.")]
LabOption = Annotated[str | None, typer.Option("--lab", help="Which lab, if several are up.")]
InterfaceOption = Annotated[str | None, typer.Option(help="One cable only, such as wlan0.")]


@app.command()
def up(
    cluster: ClusterArgument,
    name: Annotated[str | None, typer.Option(help="Name of the lab, else the cluster's.")] = None,
) -> None:
    """Keep a cluster up and show its machines until Ctrl-C or `down`."""
    _end_politely()
    began_s = time.monotonic()
    with Lab(cluster, name=name) as lab:
        try:
            console.print(_greeting(lab, time.monotonic() - began_s))
            _show_until_down(lab)
        except (KeyboardInterrupt, SystemExit):
            console.print(f"taking lab {lab.name} down")
            raise
        console.print(f"lab {lab.name} was taken down from elsewhere")


@app.command(context_settings=COMMAND)
def run(
    cluster: ClusterArgument,
    command: CommandArgument,
    on: Annotated[str, typer.Option(help="The machine that runs it.")],
) -> None:
    """Bring a cluster up, run one command on one machine, take the cluster down."""
    _end_politely()
    with Lab(cluster) as lab:
        status = lab[on].run_in_terminal(command)
    raise typer.Exit(_shell_status(status))


@app.command(name="exec", context_settings=COMMAND)
def execute(machine: MachineArgument, command: CommandArgument, lab: LabOption = None) -> None:
    """Run a command on a machine of a lab that is up."""
    raise typer.Exit(_shell_status(_machine(machine, lab).run_in_terminal(command)))


@app.command()
def show(lab: LabOption = None, as_json: Annotated[bool, typer.Option("--json", help="For scripts.")] = False) -> None:
    """Print the table of machines once."""
    requirements.check()
    labs = attach.labs_up() if lab is None else []
    for one in labs or [attach.find_lab(attach.labs_up(), lab)]:
        watch = Watch([Machine(one, machine.name) for machine in one.machines])
        time.sleep(LOOK_S)
        rows = watch.look()
        if as_json:
            print(json.dumps({"lab": one.name, "machines": [asdict(row) for row in rows]}))
        else:
            console.print(render(f"lab {one.name}", rows))


@app.command()
def slow(machine: MachineArgument, cores: Annotated[float, typer.Argument()], lab: LabOption = None) -> None:
    """Give a machine another number of cores: slow lily 0.1."""
    _machine(machine, lab).slow(cores)
    console.print(f"{machine} has {cores:g} cores")


@app.command()
def cut(machine: MachineArgument, interface: InterfaceOption = None, lab: LabOption = None) -> None:
    """Pull a machine's cable."""
    _machine(machine, lab).cut(interface)
    console.print(f"{machine} is cut off")


@app.command()
def mend(machine: MachineArgument, interface: InterfaceOption = None, lab: LabOption = None) -> None:
    """Plug a machine's cable in again."""
    _machine(machine, lab).mend(interface)
    console.print(f"{machine} is connected")


@app.command()
def freeze(
    machine: MachineArgument,
    kernel_answers: Annotated[
        bool, typer.Option("--kernel-answers", help="Stop the processes only; pings are still answered.")
    ] = False,
    lab: LabOption = None,
) -> None:
    """Close a machine's lid: it stops and answers nothing."""
    _machine(machine, lab).freeze(kernel_answers=kernel_answers)
    console.print(f"{machine} is frozen")


@app.command()
def thaw(machine: MachineArgument, lab: LabOption = None) -> None:
    """Open a machine's lid: it goes on where it stopped."""
    _machine(machine, lab).thaw()
    console.print(f"{machine} goes on")


@app.command()
def kill(machine: MachineArgument, lab: LabOption = None) -> None:
    """SIGKILL every process of a machine."""
    found = _machine(machine, lab)
    num_processes = found.usage().num_processes
    found.kill()
    console.print(f"{machine}: {num_processes} process{'es' * (num_processes != 1)} killed")


@app.command()
def down(
    lab: LabOption = None, everything: Annotated[bool, typer.Option("--all", help="Every lab that is up.")] = False
) -> None:
    """Take a lab down, and remove what labs that crashed have left."""
    requirements.check()
    with record.locked():
        leftovers = sweep.remove_abandoned()
        labs = attach.labs_up()
        wanted = labs if everything else [attach.find_lab(labs, lab)] if labs or lab else []
        for one in wanted:
            sweep.remove(one)
    for name in leftovers:
        console.print(f"removed what lab {name} had left")
    for one in wanted:
        console.print(f"lab {one.name} is down")
    if not leftovers and not wanted:
        console.print("no lab is up, and none has left anything")


def main() -> None:
    """Run the command line; errors are printed here, once."""
    try:
        app()
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _machine(name: str, lab: str | None) -> Machine:
    requirements.check()
    return attach.find_machine(attach.labs_up(), name, lab)


def _greeting(lab: Lab, took_s: float) -> str:
    lines = [f"lab {lab.name} is up after {took_s:.1f} s. Ctrl-C ends it, and so does: python -m lab down"]
    num_cores = os.cpu_count() or 1
    if lab.cluster.cores > num_cores:
        lines.append(
            f"warning: its machines have {lab.cluster.cores:g} cores, this computer has {num_cores}: "
            "busy together, they are slower than declared"
        )
    return "\n".join(lines)


def _show_until_down(lab: Lab) -> None:
    """Show the machines for as long as the lab is up: all the time in a terminal, else once."""
    watch = Watch(lab.machines)
    if not console.is_terminal:
        console.print(render(f"lab {lab.name}", watch.look()))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while lab.is_up():
            with contextlib.suppress(LabError, OSError):  # the lab is being taken down at this moment
                if console.is_terminal:
                    live.update(render(f"lab {lab.name}", watch.look()), refresh=True)
            time.sleep(LOOK_S)


def _end_politely() -> None:
    """Make SIGHUP (a closed terminal) and SIGTERM (`kill`) end a lab as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)


def _shell_status(status: int) -> int:
    return 128 - status if status < 0 else status
