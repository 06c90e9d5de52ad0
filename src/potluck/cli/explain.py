"""potluck explain: what an error in a log means."""

from pathlib import Path
from typing import Annotated

import typer


def explain(
    log: Annotated[Path | None, typer.Argument(help="A log file; standard input by default.")] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--machine", help="NAME=ADDRESS, so that the answer names machines; as often as needed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Read a log or an error and say the cause and the fix of what is known."""
    import sys

    from potluck.core.errors import SettingsError
    from potluck.doctor.explain import explain as explain_text

    names = {}
    for pair in machine or []:
        name, sign, address = pair.partition("=")
        if not (name and sign and address):
            raise SettingsError(f"{pair!r} is no machine", fix="write --machine lily=192.168.1.20")
        names[address] = name
    if log is None and sys.stdin.isatty():
        print("paste the error here, then press Ctrl-D", file=sys.stderr)
    try:
        text = sys.stdin.read() if log is None or str(log) == "-" else log.read_text(errors="replace")
    except OSError as error:
        raise SettingsError(f"{log}: {error.strerror}", fix="give the path of a log file") from None
    found = explain_text(text, names)
    if as_json:
        import dataclasses
        import json

        print(json.dumps([dataclasses.asdict(one) for one in found]))
    else:
        from potluck.cli.findings import print_explanations

        print_explanations(found)
    raise typer.Exit(0 if found else 1)
