"""The self-test's result as one JSON document to attach to an issue: versions, devices, figures, and no secrets."""

import platform
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from potluck.core.atomic import write_text
from potluck.core.version import __version__
from potluck.core.words import listed
from potluck.machine.facts import Gpu, Processor, System
from potluck.machine.gpus import read_gpus
from potluck.machine.hardware import read_memory_bytes, read_processor
from potluck.machine.snapshot import read_system
from potluck.selftest.orders import Described
from potluck.selftest.rows import ALL, Row, verdict

FILE_NAME = "potluck-selftest.json"


class TestedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one machine that was tested; no addresses, no users, no variables."""

    machine: str
    versions: dict[str, str]
    system: System
    processor: Processor
    memory_bytes: int
    devices: tuple[str, ...]
    backends: tuple[str, ...]
    gpus: tuple[Gpu, ...] = ()


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the JSON file."""

    verdict: str
    is_well: bool
    is_quick: bool
    tested_at: str
    seconds: float
    machines: tuple[TestedMachine, ...]
    rows: tuple[Row, ...]


def describe_machine(machine: str, seen: Described) -> TestedMachine:
    """This machine, as far as it matters for a failed check."""
    torchft = {}
    try:
        torchft["torchft"] = metadata.version("torchft")
    except metadata.PackageNotFoundError:
        torchft["torchft"] = ""
    return TestedMachine(
        machine=machine,
        versions={"potluck": __version__, "python": platform.python_version(), **seen.versions, **torchft},
        system=read_system(),
        processor=read_processor(),
        memory_bytes=read_memory_bytes(),
        devices=("cpu", *seen.devices),
        backends=seen.backends,
        gpus=read_gpus()[0],
    )


def make_document(
    rows: Sequence[Row], machines: Sequence[TestedMachine], *, is_quick: bool, seconds: float
) -> Document:
    """The document of a finished self-test; rows name machines that gave no description of themselves."""
    names = dict.fromkeys([*(one.machine for one in machines), *(row.machine for row in rows if row.machine != ALL)])
    return Document(
        verdict=verdict(rows, listed([name for name in names if name])),
        is_well=not any(row.result == "failed" for row in rows),
        is_quick=is_quick,
        tested_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds=round(seconds, 1),
        machines=tuple(machines),
        rows=tuple(rows),
    )


def write_document(document: Document, folder: Path) -> Path:
    """Write the file into the folder, in place of one of an earlier test."""
    path = folder / FILE_NAME
    write_text(path, msgspec.json.format(encode(document), indent=2) + "\n")
    return path


def encode(document: Document) -> str:
    """The document as one line of JSON, with ~ for the user's home folder."""
    text = msgspec.json.encode(document).decode()
    home = str(Path.home())
    return text if home == "/" else text.replace(home, "~")
