"""potluck explain: what an error in a log means."""

from pathlib import Path
from typing import Annotated

import typer

_LOOKS_LIKE_A_FILE = (".log", ".txt", ".out", ".err")


def explain(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT | FILE]...",
            help="The error itself, in quotes, or a log file; standard input by default.",
            show_default=False,
        ),
    ] = None,
    machine: Annotated[
        list[str] | None,
        typer.Option("--machine", help="NAME=ADDRESS, so that the answer names machines; as often as needed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Say the cause and the fix of an error: potluck explain "CUDA out of memory", or a log file, or a pipe."""
    from potluck.core.errors import SettingsError
    from potluck.doctor.explain import explain as explain_text

    names = {}
    for pair in machine or []:
        name, sign, address = pair.partition("=")
        if not (name and sign and address):
            raise SettingsError(f"{pair!r} is no machine", fix="write --machine lily=192.168.1.20")
        names[address] = name
    found = explain_text(_read(text or ["-"]), names)
    if as_json:
        import dataclasses
        import json

        print(json.dumps([dataclasses.asdict(one) for one in found]))
    else:
        from potluck.cli.findings import print_explanations

        print_explanations(found)
    raise typer.Exit(0 if found else 1)


def _read(words: list[str]) -> str:
    """The text to explain: standard input for '-', the content of files if all words name one, else the words."""
    import sys

    from potluck.core.errors import SettingsError

    if words == ["-"]:
        if sys.stdin.isatty():
            print("paste the error here, then press Ctrl-D", file=sys.stderr)
        return sys.stdin.buffer.read().decode(errors="replace")
    if not all(_is_path(word) for word in words):
        return " ".join(words)
    try:
        return "\n".join(Path(word).read_text(errors="replace") for word in words)
    except OSError as error:
        raise SettingsError(
            f"{error.filename}: {error.strerror}",
            fix='give the path of a log file, or the error itself in quotes: potluck explain "CUDA out of memory"',
        ) from None


def _is_path(word: str) -> bool:
    """Whether a word names an existing file, or looks like the path of one."""
    try:
        if Path(word).is_file():
            return True
    except (OSError, ValueError):  # too long for a path, or with characters that no path has
        return False
    is_one_word = not any(character.isspace() for character in word)
    return is_one_word and ("/" in word or word.endswith(_LOOKS_LIKE_A_FILE))
