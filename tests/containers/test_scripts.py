"""docker_run_master, _worker and _dashboard: each .sh under bash, each .bat under wine, with a docker that records."""

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.containers.podman import ROOT

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(300)]

DOCKER = ROOT / "docker"
SHELLS = ("sh", "bat")
SCRIPTS = ("master", "worker", "dashboard")
LINE = "p1-192.168.1.10-29500-AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
RIGHT = {"master": ["192.168.1.10"], "worker": [LINE], "dashboard": []}
CONTAINER = {"master": "potluck-host", "worker": "potluck-join", "dashboard": "potluck-dashboard"}

# The stand-in notes its arguments and what it inherits. `container inspect` fails: no container has the name yet.
_SH = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$1 $2" in
"image inspect") [ ! -e "$(dirname "$0")/no-image" ] ;;
"container inspect") [ -e "$(dirname "$0")/is-there" ] ;;
"run --detach") echo "POTLUCK_JOIN=$POTLUCK_JOIN POTLUCK_NAME=$POTLUCK_NAME" >> "$(dirname "$0")/inherited" ;;
esac
"""
_BAT = """@echo off
>> "%~dp0calls" echo %*
if "%1 %2"=="image inspect" if exist "%~dp0no-image" exit /b 1
if "%1 %2"=="container inspect" if not exist "%~dp0is-there" exit /b 1
if "%1 %2"=="run --detach" >> "%~dp0inherited" echo POTLUCK_JOIN=%POTLUCK_JOIN% POTLUCK_NAME=%POTLUCK_NAME%
exit /b 0
"""


@dataclass(frozen=True)
class Ended:
    """How a script ended, what it printed, and what its docker was called with."""

    code: int
    output: str
    errors: str
    calls: Sequence[Sequence[str]]
    inherited: str


@dataclass(frozen=True)
class Runner:
    """Starts scripts of one kind with a stand-in for docker first on the path."""

    kind: str
    folder: Path
    prefix: Path

    def place(self, *marks: str) -> None:
        """Put the stand-in there; `marks` are files that change its answers."""
        name, text = ("docker", _SH) if self.kind == "sh" else ("docker.bat", _BAT.replace("\n", "\r\n"))
        file = self.folder / name
        file.write_bytes(text.encode())
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        for mark in marks:
            (self.folder / mark).touch()

    def run(self, script: str, *arguments: str, typed: str = "", **variables: str) -> Ended:
        file = DOCKER / f"docker_run_{script}.{self.kind}"
        command = ["bash", str(file)] if self.kind == "sh" else ["wine", "cmd", "/c", _windows(file)]
        done = subprocess.run(
            [*command, *arguments],
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**self._environment(), **variables},
        )
        calls, inherited = self.folder / "calls", self.folder / "inherited"
        return Ended(
            code=done.returncode,
            output=done.stdout.replace("\r\n", "\n"),
            errors=done.stderr.replace("\r\n", "\n"),
            calls=[line.replace('"', "").split() for line in calls.read_text().splitlines()] if calls.exists() else [],
            inherited=inherited.read_text() if inherited.exists() else "",
        )

    def _environment(self) -> dict[str, str]:
        if self.kind == "sh":
            return {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.folder)}
        quiet = {"WINEDEBUG": "-all", "DISPLAY": "", "WINEARCH": "win64", "WINEPREFIX": str(self.prefix)}
        # WINEPATH comes before the path of wine's own programs.
        return {**quiet, "PATH": os.environ["PATH"], "HOME": str(self.prefix), "WINEPATH": _windows(self.folder)}


def _windows(path: Path) -> str:
    return "Z:" + str(path).replace("/", "\\")


@pytest.fixture(scope="module")
def wine_prefix(tmp_path_factory: pytest.TempPathFactory):
    """A Windows of the tests' own; its server is ended afterwards."""
    prefix = tmp_path_factory.mktemp("wine")
    yield prefix
    if shutil.which("wineserver") or Path("/usr/lib/wine/wineserver").exists():
        server = shutil.which("wineserver") or "/usr/lib/wine/wineserver"
        subprocess.run([server, "--kill"], env={**os.environ, "WINEPREFIX": str(prefix)}, check=False, timeout=60)


@pytest.fixture(params=SHELLS)
def runner(request: pytest.FixtureRequest, tmp_path: Path, wine_prefix: Path) -> Runner:
    if request.param == "bat" and shutil.which("wine") is None:
        pytest.skip("wine is not installed; .ci/run names the package")
    return Runner(request.param, tmp_path, wine_prefix)


def test_every_shell_script_is_clean_under_shellcheck():
    scripts = sorted(map(str, DOCKER.glob("*.sh")))
    assert len(scripts) == len(SCRIPTS)
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_is_clean_under_hadolint(tools: Path):
    done = subprocess.run([tools / "hadolint", DOCKER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_batch_files_have_the_line_ends_that_windows_wants():
    for file in DOCKER.glob("*.bat"):
        content = file.read_bytes()
        assert content.count(b"\n") == content.count(b"\r\n") > 10, file


def test_the_master_publishes_one_port_and_advertises_the_computers_address(runner: Runner):
    runner.place()
    ended = runner.run("master", "192.168.1.10", "--threads", "2", POTLUCK_NAME="oak")
    assert ended.code == 0, ended.errors
    run = ended.calls[-1]
    assert run[:4] == ["run", "--detach", "--name", "potluck-host"]
    assert run[-7:] == ["potluck", "host", "--no-mdns", "--advertise", "192.168.1.10", "--threads", "2"]
    assert run[run.index("--publish") + 1] == "29500:29500"
    for volume in ("potluck-host-home:/home/potluck/.potluck", "potluck-runs:/runs", "potluck-data:/data"):
        assert volume in run
    assert "--gpus" not in run
    assert "docker logs potluck-host" in ended.output


def test_the_worker_hands_the_line_over_in_the_environment_only(runner: Runner):
    runner.place()
    ended = runner.run("worker", LINE, "--devices", "cpu", POTLUCK_NAME="attic", POTLUCK_GPUS="all")
    assert ended.code == 0, ended.errors
    run = ended.calls[-1]
    assert run[-4:] == ["potluck", "join", "--devices", "cpu"]
    assert run[run.index("--gpus") + 1] == "all"
    assert "--publish" not in run
    assert LINE not in " ".join(run)
    assert f"POTLUCK_JOIN={LINE} POTLUCK_NAME=attic" in ended.inherited


def test_the_line_comes_from_the_variable_or_from_stdin_too(runner: Runner):
    runner.place()
    for ended in (
        runner.run("worker", POTLUCK_JOIN=LINE),
        runner.run("worker", "-", typed=LINE + ("\r\n" if runner.kind == "bat" else "\n")),
    ):
        assert ended.code == 0, ended.errors
        assert f"POTLUCK_JOIN={LINE}" in ended.inherited.splitlines()[-1]
        assert ended.calls[-1][-2:] == ["potluck", "join"]


def test_the_machine_has_the_computers_name_unless_it_is_given_one(runner: Runner):
    runner.place()
    ended = runner.run("worker", LINE)
    name = ended.inherited.partition("POTLUCK_NAME=")[2].strip()
    assert name
    assert name.lower() == os.uname().nodename.split(".")[0][:15].lower() or runner.kind == "sh"


def test_the_dashboard_is_for_this_computer_unless_an_address_is_typed(runner: Runner):
    runner.place()
    run = runner.run("dashboard").calls[-1]
    assert run[run.index("--publish") + 1] == "127.0.0.1:8501:8501"
    assert run[-4:] == ["potluck", "dashboard", "--address", "0.0.0.0"]
    assert "potluck-runs:/runs:ro" in run
    ended = runner.run("dashboard", "192.168.1.10")
    assert "192.168.1.10:8501:8501" in ended.calls[-1]
    assert "http://192.168.1.10:8501" in ended.output


def test_an_image_of_ones_own_is_taken(runner: Runner):
    runner.place()
    for script in SCRIPTS:
        assert "mine:2" in runner.run(script, *RIGHT[script], POTLUCK_IMAGE="mine:2").calls[-1]
    assert "mine:3" in runner.run("worker", *RIGHT["worker"], IMAGE_NAME="mine:3").calls[-1]
    both = runner.run("worker", *RIGHT["worker"], IMAGE_NAME="mine:3", POTLUCK_IMAGE="mine:2")
    assert "mine:2" in both.calls[-1]


def test_usage(runner: Runner):
    runner.place()
    for script in SCRIPTS:
        for flag in ("--help", "-h"):
            ended = runner.run(script, flag)
            assert (ended.code, ended.errors) == (0, "")
            assert f"usage: docker_run_{script}.{runner.kind}" in ended.output
    wrong = {"master": [[], ["my-computer"]], "worker": [[], ["hello"]], "dashboard": [["0.0.0.0", "8502"], ["x"]]}
    for script, cases in wrong.items():
        for arguments in cases:
            ended = runner.run(script, *arguments)
            assert ended.code == 2
            assert "usage:" in ended.errors
    assert not runner.run("master").calls


@pytest.mark.parametrize("script", SCRIPTS)
def test_errors_say_what_to_type(runner: Runner, script: str):
    ended = runner.run(script, *RIGHT[script])
    assert ended.code == 1
    assert "error: docker is not installed\n  fix: " in ended.errors
    runner.place("no-image")
    ended = runner.run(script, *RIGHT[script])
    assert ended.code == 1
    assert "there is no image potluck" in ended.errors
    assert "docker build --file docker/Dockerfile --tag potluck ." in ended.errors
    (runner.folder / "no-image").unlink()
    runner.place("is-there")
    ended = runner.run(script, *RIGHT[script])
    assert ended.code == 1
    assert f"docker start {CONTAINER[script]}" in ended.errors
    assert not any(call[0] == "run" for call in ended.calls)
