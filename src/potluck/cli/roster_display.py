"""Who is here, for people: a live table in a terminal, a line a change elsewhere."""

from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from potluck.cli.tables import ago

_STATES = {"here": "green", "getting ready": "cyan", "leaving": "yellow", "away": "yellow", "left": "dim"}


class RosterDisplay:
    """Shows a status again and again."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._told: dict[str, str] = {}

    def __enter__(self) -> "RosterDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def invite(self, host: str, lines: list[tuple[str, str]], token: str) -> None:
        """The line to paste, one for each address."""
        say = self._console.print
        say(Text(f"{host} is the host. On every other machine type:"), soft_wrap=True)
        for line, why in lines:
            say(Text(f"  potluck join {line}", style="bold") + Text(f"   ({why})", style="dim"), soft_wrap=True)
        say(Text(f"or just potluck join there, and this token: {token}"), soft_wrap=True)
        say(Text("The line lets in whoever has it: keep it among people you trust. Ctrl-C ends the host."))

    def refresh(self) -> None:
        status = self._status()
        if self._live is not None:
            self._live.update(Group(machines_table(status), runs_lines(status)), refresh=True)
            return
        for machine in status["machines"]:
            state = "has left" if machine["state"] == "left" else f"is {machine['state']}"
            told = f"{machine['machine']} {state}{', in run ' + machine['run'] if machine['run'] else ''}"
            if self._told.get(machine["machine"]) != told:
                self._told[machine["machine"]] = told
                self._console.print(Text(told), soft_wrap=True)


def machines_table(status: dict[str, Any]) -> Table:
    """One line a machine."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("machine", "state", "devices", "samples/s", "heard", "system"):
        table.add_column(heading, justify="right" if heading in ("samples/s", "heard") else "left", no_wrap=True)
    for machine in status["machines"]:
        state = f"{machine['state']}{', ' + machine['run'] if machine['run'] else ''}"
        table.add_row(
            f"{machine['machine']}{' (host)' if machine['machine'] == status['host'] else ''}",
            Text(state, style=_STATES.get(machine["state"], "")),
            "hosts only" if not machine["trains"] else ", ".join(machine["devices"] or ["?"]),
            "" if machine["samples_per_s"] is None else f"{machine['samples_per_s']:,.0f}",
            ago(machine["last_heard_s"]),
            f"{machine['os']}, {machine['cores']} cores",
        )
    return table


def runs_lines(status: dict[str, Any]) -> Text:
    """What runs now, one line each."""
    lines = [
        f"run {run['run']} ({run['what']}, by {run['started_by']}): {run['state']}, "
        f"step {run['step']}/{run['last_step'] or '?'}, {run['samples_per_s']:,.0f} samples/s"
        for run in status["runs"]
        if run["state"] in ("preparing", "running", "stopping")
    ]
    return Text("\n".join(lines) or "nothing runs; start with: potluck train")
