"""windows/potluck-setup.bat under wine, with a stand-in for wsl.exe that records its arguments; and its Linux part."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from potluck.meeting.access.install_lines import OfferedWheel, install_lines
from potluck.meeting.access.invitation import Invitation
from tests.windows.wine import is_there, run_wine, stop_wine, windows_path

pytestmark = pytest.mark.real_world

SETUP = Path(__file__).parents[2] / "windows" / "potluck-setup.bat"
SHA = "0123456789abcdef" * 4
OFFERED = OfferedWheel(key="k3y_-", name="potluck-0.1.0-py3-none-any.whl", sha256=SHA, torch="2.13.0")
WHEEL = OFFERED.url("192.168.1.10", 29500)
INVITATION = Invitation(address="192.168.1.10", port=29500, token=bytes(range(240, 256)), fingerprint=bytes(16))
LINE_OF_UV, LINE = install_lines(OFFERED, INVITATION)  # as potluck host prints them
# What a stand-in for wsl.exe knows is in files: which parts of Windows are there, and which commands fail.
STAND_IN = r"""@echo off
>>"%STATE%\asked" echo wsl %*
if "%~1"=="--status" goto status
if "%~1"=="--install" goto install
if "%~1"=="--set-version" goto set_version
if "%~1"=="--unregister" goto unregister
if "%~1"=="--uninstall" goto uninstall
if not exist "%STATE%\ubuntu" exit /b 1
if "%~5"=="true" exit /b 0
if "%~6"=="sh" goto kernel
if "%~5"=="sh" goto kernel
if "%~6"=="python3" goto venv
if "%~6"=="apt-get" goto apt
if "%~6"=="true" exit /b 0
if "%~6"=="bash" goto linux
exit /b 99
:status
if exist "%STATE%\wsl" exit /b 0
exit /b 50
:install
if exist "%STATE%\fail-install" exit /b 1
if "%~2"=="-d" goto install_ubuntu
if not exist "%STATE%\restart" >"%STATE%\wsl" echo yes
exit /b 0
:install_ubuntu
>"%STATE%\ubuntu" echo yes
exit /b 0
:kernel
if exist "%STATE%\wsl1" exit /b 1
exit /b 0
:set_version
if exist "%STATE%\fail-version" exit /b 1
del "%STATE%\wsl1"
exit /b 0
:venv
if exist "%STATE%\venv" exit /b 0
exit /b 1
:apt
if exist "%STATE%\fail-apt" exit /b 100
if "%~7"=="install" >"%STATE%\venv" echo yes
exit /b 0
:unregister
del "%STATE%\ubuntu"
exit /b 0
:uninstall
del "%STATE%\wsl"
exit /b 0
:linux
>>"%STATE%\asked" echo step %POTLUCK_STEP%
>>"%STATE%\variables-%POTLUCK_STEP%" set POTLUCK_
>>"%STATE%\variables-%POTLUCK_STEP%" set WSLENV
if exist "%STATE%\fail-%POTLUCK_STEP%" goto step_fails
exit /b 0
:step_fails
if "%POTLUCK_STEP%"=="show" del "%STATE%\fail-show"
exit /b 1
"""
RUN = """@echo off
set "STATE={state}"
set "LOCALAPPDATA={state}"
set "PATH={state};%PATH%"
"{setup}" {arguments}
"""


@pytest.fixture(scope="module")
def wine():
    if not is_there():
        pytest.skip("wine is not installed; Debian has it as wine and wine64")
    yield
    stop_wine()


class Laptop:
    """A Windows on which the setup runs: its state is a folder of files."""

    def __init__(self, folder):
        self.folder = folder / "a laptop"
        self.folder.mkdir()
        shutil.copy(SETUP, self.folder)
        (self.folder / "wsl.bat").write_bytes(STAND_IN.replace("\n", "\r\n").encode())

    def has(self, *names):
        for name in names:
            (self.folder / name).write_text("yes")
        return self

    def run(self, *answers, arguments=""):
        run = RUN.format(
            state=windows_path(self.folder), setup=windows_path(self.folder / SETUP.name), arguments=arguments
        )
        (self.folder / "run.bat").write_bytes(run.replace("\n", "\r\n").encode())
        (self.folder / "asked").unlink(missing_ok=True)
        return run_wine("cmd", "/c", "run.bat", folder=self.folder, answers=answers)

    @property
    def asked(self):
        """What wsl.exe was asked to change or to run; questions that change nothing are left out."""
        file = self.folder / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        asked = [line.strip().replace("\r", "") for line in lines]
        return [one for one in asked if not re.search(r"--status|-e true|-e sh|-e python3|-e bash", one)]

    @property
    def notes(self):
        folder = self.folder / "potluck-setup"
        return {one.name for one in folder.iterdir()} if folder.exists() else set()

    def variables(self, step):
        return (self.folder / f"variables-{step}").read_text().replace("\r", "")


@pytest.fixture
def laptop(wine, tmp_path):
    return Laptop(tmp_path)


def test_from_nothing_to_joined_with_one_question_at_a_time(laptop):
    done = laptop.run("y", "y", "yes", LINE, "Y")
    assert done.returncode == 0, done.stdout + done.stderr
    assert laptop.asked == [
        "wsl --install --no-distribution",
        "wsl --install -d Ubuntu-24.04",
        "wsl -d Ubuntu-24.04 -u root -e apt-get update",
        "wsl -d Ubuntu-24.04 -u root -e apt-get install --yes python3-venv",
        *("step show", "step install", "step doctor", "step join"),
    ]
    assert laptop.notes == {"wsl", "distribution", "packages", "potluck"}
    assert [f"Step {number} of 4" in done.stdout for number in (1, 2, 3, 4)] == [True] * 4


def test_the_line_reaches_linux_as_it_was_pasted_and_no_shell_of_windows_reads_it(laptop):
    evil = LINE + ' & echo "%PATH%" ^| more > owned & del asked !x! <nul'
    laptop.has("wsl", "ubuntu", "venv").run(evil, "y")
    assert f"POTLUCK_LINE={evil}\n" in laptop.variables("install")
    assert "WSLENV=POTLUCK_STEP:POTLUCK_LINE:POTLUCK_SETUP/p" in laptop.variables("install")
    assert not (laptop.folder / "owned").exists()
    assert LINE not in "\n".join(laptop.asked)


@pytest.mark.parametrize(
    ("there", "answers", "asked"),
    [
        ((), ("n",), []),
        ((), ("",), []),
        ((), (), []),  # the window was closed
        ((), ('y"&echo x', ""), []),
        (("wsl",), ("no",), []),
        (("wsl", "ubuntu"), ("n",), []),
        (("wsl", "ubuntu", "wsl1"), ("n",), []),
        (("wsl", "ubuntu", "venv"), ("",), []),
        (("wsl", "ubuntu", "venv"), (LINE, "n"), ["step show"]),
    ],
)
def test_nothing_is_done_without_a_yes(laptop, there, answers, asked):
    done = laptop.has(*there).run(*answers)
    assert (done.returncode, laptop.asked, laptop.notes) == (5, asked, set()), done.stdout + done.stderr
    assert "Stopped." in done.stdout


def test_after_a_restart_it_goes_on_where_it_was(laptop):
    done = laptop.has("restart").run("y")
    assert done.returncode == 3
    assert "Restart Windows" in done.stdout
    done = laptop.has("wsl").run("y", "y", LINE, "y")
    assert done.returncode == 0
    assert "Step 1" not in done.stdout
    assert laptop.notes == {"wsl", "distribution", "packages", "potluck"}


def test_a_distribution_in_wsl1_is_turned_into_wsl2(laptop):
    laptop.has("wsl", "ubuntu", "wsl1", "venv").run("y", LINE, "y")
    assert laptop.asked[0] == "wsl --set-version Ubuntu-24.04 2"
    assert laptop.notes == {"version", "potluck"}


@pytest.mark.parametrize(
    ("there", "answers", "words"),
    [
        (("fail-install",), ("y",), "could not install WSL2"),
        (("wsl", "ubuntu", "wsl1", "fail-version"), ("y",), "into WSL2"),
        (("wsl", "ubuntu", "fail-apt"), ("y",), "could not install python3-venv"),
        (("wsl", "ubuntu", "venv", "fail-install"), (LINE, "y"), "the step in Ubuntu failed"),
    ],
)
def test_what_fails_says_what_to_do(laptop, there, answers, words):
    done = laptop.has(*there).run(*answers)
    assert done.returncode == 1
    assert words in done.stderr
    assert "fix: " in done.stderr


def test_a_line_that_is_none_is_asked_for_again(laptop):
    done = laptop.has("wsl", "ubuntu", "venv", "fail-show").run("hello", LINE, "y")
    assert done.returncode == 0
    assert laptop.asked == ["step show", "step show", "step install", "step doctor", "step join"]


def test_undo_takes_back_what_was_done_and_nothing_else(laptop):
    done = laptop.run(arguments="/undo")
    assert (done.returncode, laptop.asked) == (0, [])
    laptop.has("wsl", "ubuntu").run("y", LINE, "y")  # Ubuntu was there before
    done = laptop.run("y", "y", arguments="/undo")
    assert done.returncode == 0, done.stdout
    assert laptop.asked == ["step undo", "wsl -d Ubuntu-24.04 -u root -e apt-get remove --yes python3-venv"]
    assert not laptop.notes


def test_undo_asks_before_every_step_and_keeps_what_is_not_answered_with_yes(laptop):
    laptop.run("y", "y", "y", LINE, "y")
    done = laptop.run("y", "n", "n", "n", arguments="/undo")
    assert (done.returncode, laptop.asked) == (5, ["step undo"])
    assert laptop.notes == {"wsl", "distribution", "packages"}
    assert "Ubuntu-24.04" in done.stdout.splitlines()[-1]
    done = laptop.run("y", "y", "y", arguments="/undo")
    assert done.returncode == 0
    assert laptop.asked[1:] == ["wsl --unregister Ubuntu-24.04", "wsl --uninstall"]
    assert not laptop.notes


def test_usage(laptop):
    assert "/undo" in laptop.run(arguments="/?").stdout
    done = laptop.run(arguments="/now")
    assert (done.returncode, laptop.asked) == (2, [])
    assert "fix: potluck-setup.bat" in done.stderr


# The part of the file that Ubuntu's bash reads.


@pytest.fixture
def linux(tmp_path):
    """Run a step of the Linux part as the .bat does, with a Python that records and makes a virtual environment."""
    home, programs = tmp_path / "home", tmp_path / "programs"
    for folder in (home, programs):
        folder.mkdir()
    record = f'#!/bin/bash\nprintf "%s\\n" "$(basename "$0") $*" >>{tmp_path}/asked\n'
    make = 'mkdir -p "$3/bin"; for one in pip uv potluck; do cp {0}/tool "$3/bin/$one"; done\n'
    (programs / "tool").write_text(record + f'echo "join line: ${{POTLUCK_JOIN:-}}" >>{tmp_path}/asked\n')
    (programs / "python3").write_text(record + make.format(programs))
    for file in programs.iterdir():
        file.chmod(0o755)
    setup = tmp_path / "a folder" / "potluck-setup.bat"
    setup.parent.mkdir()
    shutil.copy(SETUP, setup)
    command = re.search(r'-e bash -c "(.*)"', SETUP.read_text())[1]

    def run(step, line=LINE):
        variables = {"POTLUCK_STEP": step, "POTLUCK_LINE": line, "POTLUCK_SETUP": str(setup), "HOME": str(home)}
        variables["PATH"] = f"{programs}:/usr/bin:/bin"
        done = subprocess.run(
            ["bash", "-c", command], env=variables, cwd=home, capture_output=True, text=True, timeout=30, check=False
        )
        asked = tmp_path / "asked"
        done.asked = asked.read_text().splitlines() if asked.exists() else []
        return done

    run.home = home
    return run


@pytest.mark.parametrize("line", [LINE_OF_UV, LINE])
def test_the_linux_part_installs_what_the_line_names_and_joins(linux, line):
    shown = linux("show", line)
    assert shown.returncode == 0
    assert SHA in shown.stdout
    assert shown.asked == []
    assert linux("install", line).returncode == 0
    venv = linux.home / "potluck-venv"
    asked = [one for one in linux("join", line).asked if not one.startswith("join line: ") or "p1-" in one]
    assert asked == [
        f"python3 -m venv {venv}",
        "pip install --quiet uv",
        f"uv pip install --python {venv}/bin/python --torch-backend auto {WHEEL} torch==2.13.0",
        "potluck join",
        f"join line: {INVITATION}",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        f"potluck join {INVITATION}",
        f"pip install '{WHEEL}'",
        LINE.replace(SHA, SHA[:-1]),
        LINE.replace("http://192.168.1.10", "http://$(touch owned)"),
    ],
)
def test_a_line_that_is_not_the_hosts_is_refused_and_never_run(linux, line):
    done = linux("show", line)
    assert done.returncode == 1
    assert "fix: copy the line" in done.stderr
    assert not (linux.home / "owned").exists()


def test_words_that_are_not_the_hosts_are_left_out(linux):
    assert linux("install", LINE + "; touch owned; $(touch owned) `touch owned`").returncode == 0
    assert not (linux.home / "owned").exists()


def test_the_linux_part_leaves_nothing_behind(linux):
    linux("install")
    (linux.home / ".potluck").mkdir()
    done = linux("undo")
    assert done.returncode == 0
    assert "potluck leave" in done.asked
    assert list(linux.home.iterdir()) == []


def test_the_linux_part_passes_shellcheck(tmp_path):
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed; Debian has it as shellcheck")
    part = tmp_path / "part.sh"
    part.write_text("#!/bin/bash\n" + SETUP.read_text().partition(" LINUX PART ")[2].partition("\n")[2])
    done = subprocess.run(["shellcheck", str(part)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_line_ends_as_cmd_wants_it():
    raw = SETUP.read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n")
    raw.decode("ascii")
