"""The image: built by buildah, run by podman as a host and two joined machines on computers of their own."""

import json
from collections.abc import Iterator

import pytest

from tests.containers.lan import NETWORK, lan
from tests.containers.podman import Podman

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(1500)]

SMALL = ["--model", "simple_cnn", "--model-size", "tiny", "--num-samples", "640", "--global-batch", "64"]
JOINED = ("lily", "fern")
RUN = "contained"


@pytest.fixture(scope="module")
def cluster(podman: Podman, image: str) -> Iterator[str]:
    """rosa hosts; lily and fern join by POTLUCK_JOIN alone. Gives the line."""
    with lan("rosa", *JOINED) as spaces:
        try:
            start(podman, image, "rosa", spaces["rosa"], "host", "--no-mdns")
            line = podman.wait_for("rosa", r"p1-10\.79\.0\.1-29500-\S+").group()
            for name in JOINED:
                start(podman, image, name, spaces[name], "join", POTLUCK_JOIN=line)
            for name in JOINED:
                podman.wait_for(name, rf"joined rosa \({NETWORK}\.1\) as {name}")
            yield line
        finally:
            podman.remove("rosa", *JOINED)


def start(podman: Podman, image: str, name: str, space: str, *command: str, **variables: str) -> None:
    """Start a container whose hostname is its id, as docker and podman do by themselves."""
    given = {"POTLUCK_NAME": name, **variables}
    options = [word for key, value in given.items() for word in ("--env", f"{key}={value}")]
    network = f"ns:/run/netns/{space}"
    podman.run("run", "--detach", "--name", name, "--network", network, "--shm-size=256m", *options, image, *command)


def test_a_host_and_two_joined_machines_train(podman: Podman, cluster: str) -> None:
    train = ["potluck", "train", *SMALL, "--epochs", "1", "--experiment-name", RUN]
    output = podman.run("exec", "lily", *train, timeout_s=240)
    assert f"{RUN}: finished" in output
    for name in ("rosa", *JOINED):
        assert name in output
    files = podman.run("exec", "rosa", "sh", "-c", f"cd /runs/{RUN} && ls events && ls checkpoints").split()
    assert "model_epoch_1.pth" in files
    workers = {file.rpartition("-")[0] for file in files if file.endswith(".jsonl")}  # numbers go by who joined first
    assert workers == {"rosa", *JOINED}


def test_a_container_is_known_by_its_name_and_never_by_its_id(podman: Podman, cluster: str) -> None:
    ids = [podman.run("exec", name, "hostname").strip() for name in ("rosa", *JOINED)]
    for name in ("rosa", *JOINED):
        status = podman.run("exec", name, "potluck", "status", "--json")
        assert {machine["machine"] for machine in json.loads(status)["machines"]} == {"rosa", *JOINED}
        examined = podman.run("exec", name, "potluck", "doctor", "--check", "loopback", "--json")
        printed = podman.logs(name)
        for one in ids:
            assert one not in status
            assert one not in printed
        assert f'"machine": "{name}"' in examined or f'"machine":"{name}"' in examined


def test_the_line_reaches_no_process_of_a_run(podman: Podman, cluster: str) -> None:
    token = cluster.partition("-29500-")[2]
    for name in JOINED:
        inherited = podman.run("exec", name, "sh", "-c", 'for f in /proc/[0-9]*; do tr "\\0" "\\n" < $f/environ; done')
        # podman's own exec and the container's first process have it; nothing that Potluck starts does.
        assert inherited.count(token) <= 3, inherited.count(token)
        assert token not in podman.logs(name)


def test_the_image_runs_as_a_user_and_answers_its_health_check(podman: Podman, cluster: str) -> None:
    for name in ("rosa", *JOINED):
        assert podman.run("exec", name, "id", "--user").strip() == "1000"
        podman.run("healthcheck", "run", name)
        assert podman.run("exec", name, "stat", "--format=%a", "/home/potluck/.potluck").strip() == "700"


def test_a_machine_that_is_stopped_leaves_and_comes_back_with_its_name(podman: Podman, cluster: str) -> None:
    podman.run("stop", "--time", "60", "fern")
    assert podman.run("inspect", "--format", "{{.State.ExitCode}}", "fern").strip() == "0"
    podman.run("start", "fern")
    podman.wait_for("fern", r"this machine knows rosa")
    podman.wait_for("fern", r"(?s)left rosa.*joined rosa \(10\.79\.0\.1\) as fern")


def test_a_container_without_a_line_says_what_to_type(podman: Podman, image: str) -> None:
    with pytest.raises(AssertionError, match="p1-"):
        podman.run("run", "--rm", "--network", "none", image, "join")
    with pytest.raises(AssertionError, match="POTLUCK_JOIN: this is not a line from potluck host"):
        podman.run("run", "--rm", "--network", "none", "--env", "POTLUCK_JOIN=hello", image, "join")
