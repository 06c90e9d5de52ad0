"""`potluck doctor` and `potluck explain` as a user runs them, on machines in every state."""

import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import potluck

SOURCE = Path(potluck.__file__).parents[1]
POTLUCK = [sys.executable, "-S", "-c", "from potluck.cli import main; main()"]
NOBODY = 65534
# Reading files of others is what lets nobody start our Python at all; everything else is forbidden as usual.
AS_NOBODY = [
    "setpriv",
    *(f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with every installed package but torch."""
    folder = tmp_path_factory.mktemp("packages")
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(place).iterdir():
            if not path.name.startswith(("torch", "functorch", "__pycache__", "_potluck", "potluck")):
                (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture
def run(packages, tmp_path, monkeypatch):
    """Run a command of potluck where torch is missing, unless another folder of packages comes first."""

    def run(*arguments, first=None, command=(), text=None, **variables):
        places = [str(place) for place in (first, packages, SOURCE) if place]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(places), "HOME": str(tmp_path)}
        started, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(
            [*command, *POTLUCK, *arguments],
            input=text,
            capture_output=True,
            text=True,
            env={**environment, **variables},
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        worked_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used
        # On a busy computer the same work takes longer; waits for what is missing would not be work.
        done.is_quick = worked_s < 3 and time.monotonic() - started < max(3, 10 * worked_s)
        return done

    return run


def test_without_torch_it_says_so_quickly(run):
    done = run("doctor")
    assert "torch is not installed" in done.stdout
    assert "python -m pip install torch" in done.stdout
    assert done.returncode == 1
    assert done.is_quick


def test_with_a_torch_that_fails_to_import(run, tmp_path):
    broken = tmp_path / "broken"
    (broken / "torch").mkdir(parents=True)
    (broken / "torch" / "__init__.py").write_text(
        "raise ImportError('libcudart.so.12: cannot open shared object file')"
    )
    (broken / "torch-2.13.0.dist-info").mkdir()
    (broken / "torch-2.13.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n")
    done = run("doctor", first=broken)
    assert "libcudart.so.12" in done.stdout
    assert "--force-reinstall torch==2.13.0" in done.stdout
    assert done.is_quick


def test_without_ip_nft_and_all_other_programs(run):
    done = run("doctor", "--json", PATH="/nonexistent")
    facts = json.loads(done.stdout)["seen"]["machines"][0]
    assert [one for one in facts["interfaces"] if one["name"] == "lo"]
    assert facts["system"]["family"] == "linux"
    assert done.is_quick


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become somebody else")
def test_as_an_ordinary_user(run, tmp_path):
    tmp_path.chmod(0o777)
    done = run("doctor", "--json", command=AS_NOBODY)
    told = json.loads(done.stdout)
    assert "is_administrator" not in told["seen"]["machines"][0]["system"]
    assert len(told["findings"]) >= 30
    assert done.is_quick


def test_tokens_and_user_names_are_left_out(run, tmp_path):
    secrets = {"POTLUCK_SECRET": "hush-hush", "AWS_SECRET_ACCESS_KEY": "hush-hush", "USER": "rosalind"}
    done = run("doctor", "--json", **secrets, MASTER_ADDR="127.0.0.1")
    assert "hush" not in done.stdout
    assert "rosalind" not in done.stdout
    assert str(tmp_path) not in done.stdout  # the home folder
    assert json.loads(done.stdout)["seen"]["machines"][0]["variables"] == {"MASTER_ADDR": "127.0.0.1"}


def test_the_list_names_at_least_36_checks_once_each(run):
    rows = json.loads(run("doctor", "--list", "--json").stdout)
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)) >= 36
    listed = run("doctor", "--list").stdout
    assert all(one in listed for one in ids)


def test_one_check_alone(run):
    done = run("doctor", "--check", "ifname-invalid", GLOO_SOCKET_IFNAME="^lo")
    assert done.returncode == 1
    assert "no interface" in done.stdout
    assert "torch" not in done.stdout
    done = run("doctor", "--check", "ifname-invalid")
    assert done.returncode == 0
    done = run("doctor", "--check", "ifname-invalit")
    assert "did you mean 'ifname-invalid'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--check", "mtu"], ["mtu is about several machines", "--cluster --check mtu"]),
        (["--undo"], ["--undo belongs to --fix-script"]),
        (["--expect", "rosa"], ["--expect belongs to --cluster"]),
        (["--port", "1234"], ["--port belongs to --listen"]),
        (["--listen", "--reach", "10.0.0.1"], ["--listen and --reach cannot be used together"]),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_a_way_out(run, arguments, words):
    done = run("doctor", *arguments)
    assert done.returncode == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert "fix: " in done.stderr


def test_commands_are_never_wrapped(run):
    done = run("doctor", "--check", "torchft-missing", COLUMNS="40")
    assert "    python -m pip install 'torchft>=0.2,<0.3'\n" in done.stdout


def test_fix_scripts_are_printed_and_run_by_nobody(run):
    done = run("doctor", "--fix-script", "linux", "--peer", "lily=192.168.1.20")
    assert done.stdout.startswith("#!/usr/bin/env bash")
    assert "192.168.1.20 lily" in done.stdout
    assert run("doctor", "--fix-script", "linux").returncode == 1


def test_explain_reads_a_file_or_standard_input(run, tmp_path):
    text = "Connection closed by peer [10.77.0.2]:37522\n"
    done = run("explain", "--machine", "lily=10.77.0.2", text=text)
    assert "lily left" in done.stdout
    assert done.returncode == 0
    (tmp_path / "worker.log").write_text(text)
    (found,) = json.loads(run("explain", "worker.log", "--json").stdout)
    assert found["id"] == "peer-died"
    assert run("explain", text="all is well\n").returncode == 1
    assert "no machine" in run("explain", "--machine", "lily", text="").stderr
    assert "No such file" in run("explain", "nowhere.log").stderr


def test_explain_takes_the_error_itself(run, tmp_path):
    done = run("explain", "CUDA out of memory")
    assert done.returncode == 0
    assert "--micro-batch" in done.stdout
    assert "out-of-memory" in run("explain", "CUDA", "out", "of", "memory").stdout
    assert "out-of-memory" in run("explain", "-", text="CUDA out of memory\n").stdout
    (tmp_path / "a log").write_text("Killed\n")
    assert "killed" in run("explain", "a log").stdout
    assert run("explain", "all is well").returncode == 1
    assert run("explain", "x" * 5000).returncode == 1


def test_an_error_of_a_library_is_explained_where_it_ends_a_command(monkeypatch, capsys):
    import potluck.cli

    def dies():
        raise RuntimeError("[pair.cc:534] Connection closed by peer [10.77.0.2]:37522")

    monkeypatch.setattr(potluck.cli, "app", dies)
    with pytest.raises(SystemExit):
        potluck.cli.main()
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert told.index("RuntimeError") < told.index("cause: 10.77.0.2 left")


def test_quick_checks_tell_only_what_stops_training(monkeypatch):
    from potluck.cli.looking import look_here

    told = []
    for name in ("MASTER_ADDR", "RANK", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    look_here(told.append)
    assert told == []
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.77")
    monkeypatch.setenv("RANK", "0")
    look_here(told.append)
    (line,) = told
    assert line.startswith("doctor: ")
    assert "MASTER_ADDR=192.0.2.77" in line
    assert line.endswith("(fix: potluck doctor --check nobody-hosts)")
