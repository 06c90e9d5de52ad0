"""The only reader of environment variables."""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What this process was told from outside, with Potluck's defaults for the rest."""

    machine: str
    """Name of this computer: POTLUCK_MACHINE, else its hostname."""

    runs_dir: Path
    """Where run folders go: POTLUCK_RUNS_DIR, else ./experiments."""

    data_dir: Path
    """Where datasets are kept: POTLUCK_DATA_DIR, else ./data."""


def read_environment() -> Environment:
    """Read it now; nothing is cached, so a changed variable is seen."""
    machine = os.environ.get("POTLUCK_MACHINE") or socket.gethostname().split(".")[0] or "machine"
    return Environment(
        machine=re.sub(r"[^A-Za-z0-9._-]", "-", machine).lstrip(".") or "machine",  # it becomes part of file names
        runs_dir=Path(os.environ.get("POTLUCK_RUNS_DIR") or "experiments"),
        data_dir=Path(os.environ.get("POTLUCK_DATA_DIR") or "data"),
    )
