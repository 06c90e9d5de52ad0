"""Shows the machines of a host: a live table on a terminal, a line for each change elsewhere."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from potluck.cli.data_lines import data_lines
from potluck.cli.fitting import fitted
from potluck.cli.tables import ago
from potluck.cli.terminal import Console
from potluck.core.cards import together
from potluck.core.states import ENDED
from potluck.core.words import counted, listed
from potluck.meeting.agent.state_line import state_line
from potluck.meeting.host.pairs import is_about_link, link_lines
from potluck.meeting.new_lines import NewLines

SPARE = ("system", "heard", "busy")
"""Columns that are dropped on a narrow terminal, in this order."""

_INSTALLERS = ("On a machine without Potluck, with uv:", "or with Python and pip alone:")
_STATES = {"here": "green", "getting ready": "cyan", "leaving": "yellow", "away": "yellow", "left": "dim"}


class RosterDisplay:
    """Shows the host's status at every refresh."""

    def __init__(self, status: Callable[[], dict[str, Any] | None]) -> None:
        self._status = status
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._told: dict[str, str] = {}
        self._trouble = NewLines()

    def __enter__(self) -> "RosterDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def name_obstacle(self, lines: list[str]) -> None:
        """Print what keeps other machines from dialling this host, before the lines to paste on them."""
        for line in lines:
            self._console.print(Text(line, style="yellow"), soft_wrap=True)

    def invite(self, host: str, lines: list[tuple[str, str]], token: str, install_lines: Sequence[str] = ()) -> None:
        """Print the join lines to paste, one for each address of the host, and those that install Potluck first."""
        for one in invitation_texts(host, lines, token, install_lines):
            self._console.print(one, soft_wrap=True)

    def tell(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def refresh(self) -> None:
        status = self._status()
        if status is None:  # another machine is the host
            return
        if self._live is not None:
            self._live.update(
                Group(
                    fitted(self._console, machines_table(status), SPARE),
                    Text("\n".join([*link_lines(status, with_direct=False), runs_lines(status).plain])),
                ),
                refresh=True,
            )
            return
        for machine in status["machines"]:
            told = state_line(machine["machine"], machine["state"], machine["run"])
            if self._told.get(machine["machine"]) != told:
                self._told[machine["machine"]] = told
                self._console.print(Text(told), soft_wrap=True)
        trouble = list(
            dict.fromkeys([*status["trouble"], *(line for run in status["runs"] for line in run["trouble"])])
        )
        for line in self._trouble.of(trouble):
            self._console.print(Text(line), soft_wrap=True)


def invitation_texts(
    host: str,
    lines: Sequence[tuple[str, str]],
    token: str,
    install_lines: Sequence[str] = (),
    *,
    end: str = "Ctrl-C ends the host.",
) -> list[Text]:
    """The lines to paste on other machines, with what they are for; `end` says what ends the host."""
    texts = [Text(f"{host} is the host. On every other machine type:")]
    texts += [Text(f"  potluck join {line}", style="bold") + Text(f"   ({why})", style="dim") for line, why in lines]
    texts.append(Text(f"or just potluck join there, and this token: {token}"))
    for line, when in zip(install_lines, _INSTALLERS, strict=False):
        texts += [Text(when), Text(f"  {line}", style="bold")]
    return [*texts, Text(f"Each line lets in whoever has it: keep it among people you trust. {end}")]


def succession_lines(status: dict[str, Any]) -> list[str]:
    """Who takes the host's place when it is gone; nothing while the host is alone."""
    succession, host = status.get("succession") or {}, status["host"]
    successors, alone = succession.get("successors") or [], succession.get("may_go_on_alone") or []
    if not successors or len(succession["voters"]) < 2:
        return []
    if alone == [host]:
        return [
            f"{listed(successors)} keeps a copy of {host}'s state, and waits for {host} when it is gone: two machines "
            f"have no majority; to let it go on alone, on {host}: potluck host --successor {successors[0]}"
        ]
    keeps = "keeps a copy" if len(successors) == 1 else "keep copies"
    when = "" if alone else ", with the votes of more than half of the machines"
    return [f"{listed(successors)} {keeps} of {host}'s state, and may take its place{when} (term {succession['term']})"]


def machines_table(status: dict[str, Any]) -> Table:
    """A table with one row for each machine."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("machine", "state", "devices", "samples/s", "busy", "heard", "system"):
        table.add_column(heading, justify="right" if heading in ("samples/s", "heard") else "left", no_wrap=True)
    for machine in status["machines"]:
        state = f"{machine['state']}{', ' + machine['run'] if machine['run'] else ''}"
        table.add_row(
            f"{machine['machine']}{' (host)' if machine['machine'] == status['host'] else ''}",
            Text(state, style=_STATES.get(machine["state"], "")),
            "hosts only" if not machine["trains"] else _devices(machine),
            "" if machine["samples_per_s"] is None else f"{machine['samples_per_s']:,.0f}",
            _busy(machine.get("busy")),
            ago(machine["last_heard_s"]),
            f"{machine['os']}, {counted(machine['cores'], 'core')}",
        )
    return table


def _devices(machine: dict[str, Any]) -> str:
    cards = machine.get("cards") or {}
    return together(cards.get(device, device) for device in machine["devices"] or ["?"])


def _busy(use: dict[str, Any] | None) -> str:
    """How busy a machine's GPUs and cores are; empty while it trains nothing."""
    if use is None:
        return ""
    gpus = [f"gpu {100 * busy:.0f} %" for busy in use["gpus"] if busy is not None]
    watts = [one for one in use.get("gpu_power_w", []) if one is not None]
    power = [f"{sum(watts):.0f} W"] if watts else []
    return ", ".join([*gpus, *power, f"cpu {100 * use['cpu']:.0f} %"])


def runs_lines(status: dict[str, Any]) -> Text:
    """A line for each run that has not ended, each followed by lines about its trouble."""
    lines = []
    for run in status["runs"]:
        if run["state"] not in ENDED:
            pace = f"step {run['step']}/{run['last_step'] or '?'}, {run['samples_per_s']:,.0f} samples/s"
            if run["is_plain"]:
                pace = f"plain, on {listed(list(run['workers']))}; what it prints: potluck logs {run['run']}"
            lines.append(f"run {run['run']} ({run['what']}, by {run['started_by']}): {run['state']}, {pace}")
            lines += run["gradients"]
            lines += data_lines(run.get("data"))
            lines += [line for line in run["trouble"] if not is_about_link(line)]
    return Text("\n".join(lines) or "nothing runs; start with: potluck train")
