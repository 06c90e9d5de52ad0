"""What other machines and files say cannot command the terminal, whatever command prints it."""

import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from potluck.cli import app
from potluck.cli.saying import say
from potluck.cli.terminal import Console
from potluck.core.errors import PotluckError
from potluck.core.run_folder import RunFolder
from potluck.events.log import read_records
from potluck.events.types import MachineBenched, Notice, PlanChanged, RunEnded, RunStarted
from tests.unit.report.runs import eventful

SOURCES = Path(__file__).parents[3] / "src" / "potluck"
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b1A\r\u202e\x08"


def poison(folder: RunFolder) -> None:
    """Every text of the run's events and settings holds terminal commands."""
    for file in folder.event_files():
        changed = []
        for record in read_records(file):
            event = record.event
            match event:
                case Notice() | RunEnded():
                    text = "text" if isinstance(event, Notice) else "message"
                    event = msgspec.structs.replace(event, **{text: HOSTILE})
                case MachineBenched():
                    event = msgspec.structs.replace(event, reason=HOSTILE, machine=f"fern{HOSTILE}")
                case RunStarted():
                    event = msgspec.structs.replace(event, machine=event.machine + HOSTILE, versions={HOSTILE: HOSTILE})
                case PlanChanged():
                    event = msgspec.structs.replace(event, reason=HOSTILE, shares={HOSTILE: 1, **event.shares})
            changed.append(msgspec.structs.replace(record, event=event))
        file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in changed))
    escaped = HOSTILE.encode("unicode_escape").decode()
    with folder.settings_file.open("a") as settings:
        settings.write(f'note: "{escaped}"\n')


def commands_in(text: str) -> str:
    return "".join(re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text))


@pytest.mark.timeout(120)
def test_no_command_prints_what_events_and_settings_hide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POTLUCK_RUNS_DIR", str(tmp_path))
    monkeypatch.setenv("POTLUCK_HOME", str(tmp_path / "home"))
    poison(eventful(tmp_path, "one"))
    poison(eventful(tmp_path, "two"))
    for arguments in (
        ["report", "one"],
        ["report", "one", "--json"],
        ["runs"],
        ["compare", "one", "two"],
        ["compare", "one", "two", "--csv"],
        ["report", "one", "--html", str(tmp_path / "one.html")],
        ["compare", "one", "two", "--html", str(tmp_path / "both.html")],
        ["report", HOSTILE],
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, (SystemExit, PotluckError, type(None))), arguments
        assert commands_in(result.output) == "", arguments
    for page in ("one.html", "both.html"):
        assert commands_in((tmp_path / page).read_text()) == ""


def test_tables_and_lines_show_escapes_and_keep_their_own_colours():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=200, color_system="standard")
    table = Table("machine")
    table.add_row(HOSTILE)
    console.print(table)
    console.print(Text(HOSTILE, style="bold red"))
    console.print(HOSTILE, markup=False)
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.getvalue())
    assert "\x1b[1;31m" in shown.getvalue()
    assert commands_in(text) == ""
    assert text.count("\\x1b]0;owned\\") == 3


def test_plain_lines_show_escapes(capsys):
    say(HOSTILE)
    assert commands_in(capsys.readouterr().out) == ""


def test_there_is_one_console():
    using = [
        file.name
        for file in SOURCES.rglob("*.py")
        if re.search(r"rich\.console import .*\bConsole\b", file.read_text())
    ]
    assert using == ["terminal.py"]


def test_paths_in_commands_to_paste_are_quoted():
    unquoted = re.compile(
        r"\b(?:rm|rm -[rf]+|mv|cp|sed -i '[^']*'|chmod \S+|curl -L -o) \{(?!quote)[^}]*(?:path|file|folder|into)"
    )
    found = [
        (file.name, match[0])
        for file in SOURCES.rglob("*.py")
        for match in unquoted.finditer(file.read_text())
        if not match[0].endswith("{quoted")
    ]
    assert found == []


def test_a_notebooks_cell_gets_lines_although_its_kernel_forces_colours(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel sets it
    assert Console(file=io.StringIO()).is_terminal
    monkeypatch.setenv("JPY_PARENT_PID", "77")
    assert not Console(file=io.StringIO()).is_terminal
