"""The compose file: host, joined machine and dashboard on a bridge with published ports, and training over them."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.containers.lan import NETWORK, lan
from tests.containers.podman import ROOT, ContainerError, Podman

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(1500)]

FILE = ROOT / "docker" / "compose.yaml"
SMALL = ["--model", "simple_cnn", "--model-size", "tiny", "--num-samples", "640", "--global-batch", "64"]
HOST, JOIN, DASHBOARD, LILY = "potluck_host_1", "potluck_join_1", "potluck_dashboard_1", "compose-lily"
Compose = Callable[..., str]


@pytest.fixture(scope="module")
def spaces() -> Iterator[dict[str, str]]:
    """The namespaces of two computers: oak, 10.79.0.1, has the compose file, and lily, 10.79.0.2, is another."""
    with lan("oak", "lily") as made:
        yield made


@pytest.fixture(scope="module")
def compose(podman: Podman, image: str, tools: Path, spaces: dict[str, str]) -> Iterator[Compose]:
    """`podman-compose ARGUMENTS` on oak."""

    def call(*arguments: str, **variables: str) -> str:
        settings = {"POTLUCK_IMAGE": image, "POTLUCK_ADVERTISE": f"{NETWORK}.1", **variables}
        command = [str(tools / "podman-compose"), "--file", str(FILE), *arguments]
        return podman.call(command, network=spaces["oak"], more=settings, timeout_s=180)

    try:
        call("up", "--detach", "--no-build", "host")
        line = podman.wait_for(HOST, r"p1-10\.79\.0\.1-29500-\S+").group()
        call("up", "--detach", "--no-build", "join", "dashboard", POTLUCK_JOIN=line, POTLUCK_NAME="attic")
        lily = ["--name", LILY, "--network", f"ns:/run/netns/{spaces['lily']}", "--env", "POTLUCK_NAME=lily"]
        podman.run("run", "--detach", *lily, "--env", f"POTLUCK_JOIN={line}", image, "join")
        for name in (JOIN, LILY):
            podman.wait_for(name, rf"joined host \({NETWORK}\.1\)")
        yield call
    finally:
        podman.remove(LILY)
        call("down", "--volumes", "--timeout", "5")


def test_containers_behind_bridges_and_one_that_dials_out_train(podman: Podman, compose: Compose) -> None:
    train = ["potluck", "train", *SMALL, "--epochs", "1", "--experiment-name", "composed"]
    output = podman.run("exec", JOIN, *train, timeout_s=240)
    assert "composed: finished" in output
    status = json.loads(podman.run("exec", HOST, "potluck", "status", "--json"))
    assert {machine["machine"] for machine in status["machines"]} == {"host", "attic", "lily"}
    files = podman.run("exec", HOST, "ls", "/runs/composed/events").split()
    assert {"host-0.jsonl", "attic-1.jsonl", "lily-2.jsonl"} == set(files)


def test_the_dashboard_answers_on_its_own_computer_only(
    podman: Podman, compose: Compose, spaces: dict[str, str]
) -> None:
    fetch = "import urllib.request; print(urllib.request.urlopen('http://{}:8501/_stcore/health', timeout=5).read())"
    inside = ["python3", "-c"]

    def ask(address: str) -> str:
        return podman.call([*inside, fetch.format(address)], network=spaces["oak"])

    assert "ok" in until(lambda: ask("127.0.0.1"))
    with pytest.raises(ContainerError):
        ask(f"{NETWORK}.1")
    password = podman.wait_for(DASHBOARD, r"password: (\S+)").group(1)
    assert len(password) > 8


def test_the_volumes_keep_what_a_machine_is(podman: Podman, compose: Compose, spaces: dict[str, str]) -> None:
    compose("stop", "join")
    podman.remove(JOIN, network=spaces["oak"])
    compose("up", "--detach", "--no-build", "join")  # without the line: the volume holds the membership
    assert "as attic" in podman.wait_for(JOIN, r"joined host \(10\.79\.0\.1\) as \S+").group()


def test_the_host_without_an_address_says_which_setting_is_missing(podman: Podman, image: str, tools: Path) -> None:
    text = FILE.read_text(encoding="utf-8")
    command = re.search(r"--advertise\", \"\$\{POTLUCK_ADVERTISE:-(\S+)\}\"", text)
    assert command is not None
    with pytest.raises(ContainerError, match=r"POTLUCK_ADVERTISE-is-not-set' is no IPv4 address"):
        podman.run("run", "--rm", "--network", "none", image, "host", "--advertise", command.group(1))


def until(ask: Callable[[], str], timeout_s: float = 90.0) -> str:
    """The answer as soon as there is one."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except ContainerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1.0)
