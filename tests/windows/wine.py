"""Runs programs of Windows with wine, in a prefix (wine's folder for its C: drive) that is kept between test runs."""

import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

KEPT = Path("/var/tmp/potluck-windows")
_LEFT_OUT = ("PIP_", "SSL_", "PYTHON", "POTLUCK_")  # they name files of Linux, or would change what is tested

_QUESTION = re.compile(rb"\[y/N\] |^Line: ", re.MULTILINE)


def is_there() -> bool:
    """Whether wine is installed."""
    return shutil.which("wine") is not None


def run_wine(
    *command: str, folder: Path, answers: Sequence[str] = (), timeout_s: float = 120, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with wine. Its streams are pipes: Python for Windows starts with no others under wine.

    Each answer is typed when the program has printed another question and waits: wine's cmd would take all at once.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    wine = {"WINEPREFIX": str(KEPT / "prefix"), "WINEDEBUG": "-all", "WINEARCH": "win64", "DISPLAY": ""}
    started = subprocess.Popen(
        ["wine", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment, **wine, **variables},
        cwd=folder,
    )
    with started as program:
        assert program.stdin is not None
        assert program.stdout is not None
        printed = _type_answers(program, answers, time.monotonic() + timeout_s) if answers else b""
        try:
            out, errors = program.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
    return subprocess.CompletedProcess(list(command), program.returncode, _text(printed + out), _text(errors))


def _type_answers(program: subprocess.Popen[bytes], answers: Sequence[str], until: float) -> bytes:
    """What the program printed until its last answer was typed."""
    assert program.stdin is not None
    assert program.stdout is not None
    stdout, printed, seen = program.stdout.fileno(), b"", 0
    for answer in answers:
        while len(_QUESTION.findall(printed)) <= seen:
            assert time.monotonic() < until, f"no question: {printed.decode(errors='replace')}"
            if not select.select([stdout], [], [], 1)[0]:
                continue
            more = os.read(stdout, 65536)
            if not more:
                return printed
            printed += more
        seen += 1
        program.stdin.write(answer.encode() + b"\r\n")
        program.stdin.flush()
    return printed


def stop_wine() -> None:
    """End wine's own server and services, which outlive the last program for some seconds."""
    environment = {**os.environ, "WINEPREFIX": str(KEPT / "prefix")}
    subprocess.run(["wineserver", "--kill"], env=environment, capture_output=True, timeout=30, check=False)


def windows_path(path: Path) -> str:
    """A Linux path as programs of Windows see it: wine shows the root folder as drive Z."""
    return "Z:" + str(path).replace("/", "\\")


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace").replace("\r\n", "\n")
