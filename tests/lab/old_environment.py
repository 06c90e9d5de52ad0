"""A virtual environment with an older Potluck."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

from potluck.core.version import __version__

ROOT = Path(__file__).parents[2]
OLD = "0.0.9"


@dataclass(frozen=True)
class OldEnvironment:
    """Everything but Potluck comes from the environment that runs the tests."""

    python: str
    variables: dict[str, str]


def make_old_environment(folder: Path) -> OldEnvironment:
    """The old Potluck is built from this tree; only its version differs."""
    venv, tree = folder / "venv", folder / "tree"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python*/site-packages"))
    (packages / "everything_else.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    version = tree / "src" / "potluck" / "core" / "version.py"
    version.write_text(version.read_text().replace(__version__, OLD))
    with zipfile.ZipFile(_build(tree, folder)) as wheel:
        wheel.extractall(packages)
    variables = {
        "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": "",
        "PIP_NO_INDEX": "1",
    }
    return OldEnvironment(str(venv / "bin" / "python"), variables)


def _build(tree: Path, into: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    return next(into.glob("*.whl"))
