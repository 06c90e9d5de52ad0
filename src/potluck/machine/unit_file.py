"""The text of a systemd unit, with words quoted by systemd's rules."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from potluck.core.errors import ServiceError

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote_word(word: str) -> str:
    """One word of ExecStart= or Environment=: specifiers begin with %, and quotes and backslashes are escaped."""
    if "\0" in word:
        raise ServiceError("a word of the command contains a NUL character", fix="leave it out")
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in word).replace("%", "%%") + '"'


def unit_text(description: str, command: Sequence[str], *, folder: Path, variables: Mapping[str, str]) -> str:
    """A user unit that keeps the command running: it starts with the user's manager, and again after a failure."""
    if any(letter in str(folder) for letter in "\n\r\\"):
        raise ServiceError(f"systemd cannot work in the folder {str(folder)!r}", fix="cd to another folder first")
    words = " ".join(quote_word(word) for word in command)
    lines = [
        "# Written by potluck; remove it with: potluck service --remove",
        "[Unit]",
        f"Description={description}",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        f"WorkingDirectory={str(folder).replace('%', '%%')}",
        *(f"Environment={quote_word(f'{name}={value}')}" for name, value in variables.items()),
        f"ExecStart=:{words}",  # the colon: a dollar sign is a dollar sign
        "Restart=on-failure",
        "RestartSec=10",
        "# Workers end with their step: only the main process gets the first signal.",
        "KillMode=mixed",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"
