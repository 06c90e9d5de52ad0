"""The lines of docs/install.md, typed in fresh Debian containers in the order of the page."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.containers.podman import ROOT, Podman

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(2400)]
PAGE = ROOT / "docs" / "install.md"
BLOCK = re.compile(r"<!-- tested on: (\w+) -->\n```\n(.*?)```", re.DOTALL)
# What cannot be reached from here: PyTorch's own index, whose build pip finds in a folder, and a published repository.
STAND_INS = {" --index-url https://download.pytorch.org/whl/cpu": "", "ADDRESS": "/source"}
# A fresh Debian has Python without venv, and sudo.
FRESH = """
apt-get -qq purge --yes python3-venv python3.11-venv python3-pip >/dev/null
apt-get -qq update
apt-get -qq install --yes --no-install-recommends sudo >/dev/null
! python3 -m venv /without-venv >/dev/null
"""


def lines_for(machine: str) -> list[str]:
    """The page's blocks for one machine, as one reader types them."""
    blocks = [block for name, block in BLOCK.findall(PAGE.read_text()) if name == machine]
    for told, here in STAND_INS.items():
        blocks = [block.replace(told, here) for block in blocks]
    return [f'{block}set +x; echo "after block {number}: $SECONDS s"; set -x' for number, block in enumerate(blocks, 1)]


class Machine:
    """A container whose home folder is kept, so that files can be carried to another machine."""

    def __init__(self, podman: Podman, base: str, home: Path, *, network: str = "host") -> None:
        self._podman, self._base, self.home, self._network = podman, base, home, network
        home.mkdir()

    def type(self, name: str, source: Path, *, before: str = "") -> str:
        """Type the page's lines for the machine of that name; gives what they printed."""
        script = "\n".join(["set -euo pipefail", "exec 2>&1", before, "cd", "set -x", *lines_for(name)])
        mounts = ["--volume", f"{self.home}:/machine", "--volume", f"{source}:/source:ro", *self._podman.volumes()]
        options = [
            "--rm",
            "--ipc",
            "host",
            "--network",
            self._network,
            "--env",
            "HOME=/machine",
            "--env",
            "PIP_NO_CACHE_DIR=1",
        ]
        return self._podman.run("run", *options, *mounts, self._base, "bash", "-c", script, timeout_s=1200)

    def versions(self) -> set[str]:
        """Name and version of every package in the environment, from the folders that pip writes."""
        found = self.home.glob("potluck-venv/lib/python3*/site-packages/*.dist-info")
        return {folder.name.removesuffix(".dist-info") for folder in found}

    def carry(self, target: "Machine", *names: str) -> None:
        """Copy files and folders from this machine's home folder to another's."""
        for name in names:
            if (self.home / name).is_dir():
                shutil.copytree(self.home / name, target.home / name)
            else:
                shutil.copy(self.home / name, target.home)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository with what an installation needs."""
    folder = tmp_path / "source"
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    name = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (["init", "--quiet"], ["add", "--all"], [*name, "commit", "--quiet", "--message", "source"]):
        subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, timeout=60)
    return folder


@pytest.fixture
def homes(tmp_path: Path):
    """A folder for the machines' homes, of a gigabyte each; removed after the test."""
    folder = tmp_path / "homes"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_every_line_for_debian_works_as_it_stands(podman: Podman, base: str, source: Path, homes: Path) -> None:
    first = Machine(podman, base, homes / "first")
    printed = first.type("first", source, before=FRESH)
    print(printed)
    assert re.search(r"^potluck \d+\.\d+\.\d+$", printed, re.MULTILINE)
    assert ": finished" in printed
    wheels = sum(file.stat().st_size for file in (first.home / "wheels").iterdir())
    installed = sum(file.stat().st_size for file in (first.home / "potluck-venv").rglob("*") if not file.is_symlink())
    print(f"wheels {wheels / 1e6:.0f} MB, environment {installed / 1e6:.0f} MB")

    second = Machine(podman, base, homes / "second")
    first.carry(second, "constraints.txt", "potluck")
    print(second.type("second", source))
    assert second.versions() == first.versions()

    offline = Machine(podman, base, homes / "offline", network="none")
    first.carry(offline, "wheels")
    print(offline.type("offline", source))
    assert offline.versions() == first.versions()
