"""Potluck on a Windows Python under wine: pip installs the wheel without torch, the doctor runs, unit tests pass."""

import json
import re

import pytest

from tests.windows.only_linux import IGNORED
from tests.windows.windows_python import PYTHON, ROOT, make_windows_python
from tests.windows.wine import is_there, run_wine, stop_wine, windows_path

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(900)]
LAYERS = ("core", "events", "planning", "machine", "doctor", "report")


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """Run a module of the Windows Python, in a folder of its own."""
    if not is_there():
        pytest.skip("wine is not installed; Debian has it as wine and wine64")
    folder = tmp_path_factory.mktemp("windows")
    printed = make_windows_python(tmp_path_factory.mktemp("wheel"))

    def run(*arguments, where=folder, timeout_s=120, **variables):
        return run_wine(str(PYTHON), "-m", *arguments, folder=where, timeout_s=timeout_s, **variables)

    run.pip_printed = printed
    yield run
    stop_wine()


def test_pip_on_windows_finds_nothing_missing_and_asks_for_no_torch(windows):
    assert "No broken requirements found." in windows.pip_printed
    assert "torch" not in windows("pip", "list").stdout.lower().replace("potluck", "")


def test_the_doctor_says_what_to_do_on_windows(windows):
    done = windows("potluck", "doctor")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(r"fail\s+windows-native", done.stdout)
    assert "wsl --install -d Ubuntu" in done.stdout
    assert "torch-missing" not in done.stdout
    assert "potluck-setup.bat" in done.stdout


def test_the_doctor_tells_all_in_json(windows):
    done = windows("potluck", "doctor", "--json")
    told = json.loads(done.stdout)
    (facts,) = told["seen"]["machines"]
    assert facts["system"]["family"] == "windows"
    assert [one["id"] for one in told["findings"] if one["status"] == "fail"] == ["windows-native"]


@pytest.mark.parametrize("command", ["host", "join", "train"])
def test_what_needs_linux_says_so(windows, command):
    done = windows("potluck", command)
    assert done.returncode == 1
    assert f"potluck {command} runs inside WSL2" in done.stderr
    assert "fix: potluck doctor --check windows-native" in done.stderr


def test_what_only_reads_works(windows):
    assert "out-of-memory" in windows("potluck", "explain", "CUDA out of memory").stdout
    recorded = {"POTLUCK_RUNS_DIR": windows_path(ROOT / "tests" / "runs")}
    assert "eventful" in windows("potluck", "runs", **recorded).stdout
    assert "machines that came and went" in windows("potluck", "report", "eventful", **recorded).stdout


@pytest.mark.parametrize("layer", LAYERS)
def test_unit_tests_of_layers_without_torch_pass_on_windows(windows, layer):
    """The tests of only_linux.py are left out, each with its reason."""
    left_out = [f"--ignore={path}" for path in IGNORED]
    done = windows(
        *("pytest", "-p", "tests.windows.only_linux", "-p", "no:cacheprovider", "--quiet", "--no-header"),
        *("--timeout=300", "-m", "not slow", f"tests/unit/{layer}", *left_out),
        where=ROOT,
        timeout_s=600,
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONUTF8="1",  # tests read files of this tree without naming their encoding
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
    assert re.search(r"\d+ passed", done.stdout)
