"""docs/containers.md and the run scripts, typed as they stand on two computers, with podman as `docker`."""

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.docker_by_podman import place_docker, tag_as_potluck
from tests.containers.lan import NETWORK, lan
from tests.containers.podman import ROOT, Podman

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(1500)]

GUIDE = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
CONTAINERS = {"oak": ("potluck-host", "potluck-dashboard"), "attic": ("potluck-join",)}
VOLUMES = ("potluck-host-home", "potluck-join-home", "potluck-runs", "potluck-data")


class Computers:
    """oak, 10.79.0.1, and attic, 10.79.0.2: type commands on either."""

    def __init__(self, podman: Podman, spaces: dict[str, str], docker: Path) -> None:
        self._podman = podman
        self._spaces = spaces
        self._path = f"{docker}:{os.environ['PATH']}"

    def clear(self) -> None:
        """Remove the containers of both."""
        for computer, names in CONTAINERS.items():
            self._podman.remove(*names, network=self._spaces[computer])

    def type(self, computer: str, text: str, *, typed: str = "") -> str:
        """What the lines print; `typed` is what the user types when one of them asks."""
        told = text.replace("192.168.1.10", f"{NETWORK}.1").replace(" --follow", "")
        lines = f"set -e\n{told}" if not typed else f"set -e\nexec <<'END'\n{typed}\nEND\n{told}"
        more = {"PATH": self._path}
        return self._podman.call(
            ["bash", "-c", lines], network=self._spaces[computer], cwd=ROOT, more=more, timeout_s=300
        )


@pytest.fixture(scope="module")
def computers(podman: Podman, image: str, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Computers]:
    tag_as_potluck(podman, image)
    with lan("oak", "attic") as spaces:
        yield Computers(podman, spaces, place_docker(tmp_path_factory.mktemp("path"), tools))


@pytest.fixture(autouse=True)
def _containers_are_removed(podman: Podman, computers: Computers) -> Iterator[None]:
    yield
    computers.clear()
    podman.run("volume", "rm", "--force", *VOLUMES)


def blocks(title: str) -> list[str]:
    """The blocks of commands under that heading."""
    section = GUIDE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"(?ms)^```\n(.*?)^```$", section)


def test_the_guide_from_the_host_to_a_run_and_its_page(podman: Podman, computers: Computers) -> None:
    (host,) = [block for block in blocks("Host in a container") if "docker run" in block]
    start, rest = host.split("docker logs", 1)
    computers.type("oak", start)
    line = podman.wait_for("potluck-host", r"p1-10\.79\.0\.1-29500-\S+").group()
    (join,) = blocks("Join from a container")
    computers.type("attic", join, typed=line)
    podman.wait_for("potluck-join", r"joined oak \(10\.79\.0\.1\) as attic")
    assert "attic" in computers.type("attic", "docker exec potluck-join potluck status")
    printed = computers.type("oak", "docker logs" + rest)
    assert "attic" in printed
    assert ": finished" in printed
    (page,) = blocks("The dashboard")
    computers.type("oak", page)
    podman.wait_for("potluck-dashboard", r"(?s)where this container's port 8501 is published.*password: \S+")


def test_the_proofs_of_the_guide_can_be_typed(podman: Podman, computers: Computers) -> None:
    podman.run(
        "run", "--detach", "--name", "potluck-join", "--network", "none", "--entrypoint", "sleep", "potluck", "600"
    )
    proofs = re.findall(r"`(docker exec potluck-join potluck doctor [^`]*)`", GUIDE)
    assert len(proofs) >= 4
    for proof in proofs:
        printed = computers.type("attic", f"{proof} || [ $? -eq 1 ]")  # 1: a check has failed, and says so
        assert printed.strip()


def test_the_scripts_start_containers_that_join(podman: Podman, computers: Computers) -> None:
    (scripts,) = blocks("By scripts")
    master, worker, dashboard = [line.partition("#")[0].strip() for line in scripts.splitlines()]
    assert "docker logs potluck-host" in computers.type("oak", master)
    line = podman.wait_for("potluck-host", r"p1-10\.79\.0\.1-29500-\S+").group()
    assert "docker stop potluck-join" in computers.type("attic", f"POTLUCK_NAME=attic {worker}", typed=line)
    podman.wait_for("potluck-join", rf"joined {socket.gethostname().split('.')[0]} \(10\.79\.0\.1\) as attic")
    assert "http://127.0.0.1:8501" in computers.type("oak", dashboard)
    podman.wait_for("potluck-dashboard", r"password: \S+")
