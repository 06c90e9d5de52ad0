"""One pasted line takes a bare container, Debian and Python, to its first committed step, with uv and with pip."""

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from potluck.meeting.host.own_wheel import build_wheel
from tests.containers.lan import NETWORK, lan
from tests.containers.podman import KEPT, ROOT, Podman, held
from tests.containers.wheel_index import HTTP_PORT, PYTORCH

pytestmark = [pytest.mark.real_world, pytest.mark.timeout(900)]

HOST, BARE = "rosa", "lily"
ADDRESS = f"{NETWORK}.1"
TORCH = "torch==2.13.0"
SMALL = ["--model", "simple_cnn", "--model-size", "tiny", "--num-samples", "2000", "--global-batch", "64"]
GOAL_S = 180.0
INDEX = f"http://{ADDRESS}:{HTTP_PORT}/simple"
VARIABLES = {
    "PIP_INDEX_URL": INDEX,
    "PIP_TRUSTED_HOST": ADDRESS,
    "UV_DEFAULT_INDEX": INDEX,
    "SSL_CERT_FILE": "/authority.pem",
    "POTLUCK_NAME": BARE,
}


@pytest.fixture(scope="module")
def wheels(podman: Podman, base: str) -> Path:
    """All that Potluck needs as wheels for the base image's Python; downloaded once and kept."""
    folder = KEPT / "wheels"
    with held("wheels"):
        folder.mkdir(exist_ok=True)
        wheel = build_wheel()
        own = folder / wheel.name
        own.write_bytes(wheel.content)
        needed = f"/wheels/{wheel.name} {TORCH} uv pip setuptools wheel packaging"
        script = f"python3 -m venv /v && /v/bin/pip download --quiet --find-links /wheels --dest /wheels {needed}"
        mount = ["--volume", f"{folder}:/wheels"]
        command = ["run", "--rm", "--network", "host", *podman.volumes(), *mount, "--env", "PIP_PREFER_BINARY=1"]
        wanted, complete = "\n".join([needed, *(metadata.requires("potluck") or [])]), folder / "complete"
        if not complete.exists() or complete.read_text() != wanted:  # downloaded for other requirements
            podman.run(*command, base, "sh", "-ec", script, timeout_s=600)
            complete.write_text(wanted)
        own.unlink()  # Potluck itself must come from the host
    return folder


@pytest.fixture(scope="module")
def uv(wheels: Path) -> Path:
    """The program uv, which a user of uv has already."""
    (wheel,) = wheels.glob("uv-*.whl")
    program = KEPT / "uv"
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith("/scripts/uv"))
        program.write_bytes(archive.read(inside))
    program.chmod(0o755)
    return program


@pytest.fixture(scope="module")
def spaces() -> Iterator[dict[str, str]]:
    with lan(HOST, BARE) as spaces:
        yield spaces


@pytest.fixture(scope="module")
def authority(wheels: Path, spaces: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The index on the host's computer; gives the certificate of the authority that signed PyTorch's name for it."""
    folder = tmp_path_factory.mktemp("authority")
    write_certificates(folder)
    arguments = [wheels, ADDRESS, folder / "server.pem", folder / "server.key"]
    with in_space(
        spaces[HOST], "-m", "tests.containers.wheel_index", *map(str, arguments), output=folder / "log"
    ) as log:
        wait_for(lambda: "ready" in log(), log)
        yield folder / "authority.pem"


@pytest.fixture
def host(spaces: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """A host on a computer of its own; gives the folder that it runs in, with what it prints in the file log."""
    folder = tmp_path / "rosa"
    folder.mkdir()
    variables = {**os.environ, "POTLUCK_HOME": str(folder / "home"), "POTLUCK_NAME": HOST}
    command = ["-m", "potluck", "host", "--no-mdns"]
    with in_space(spaces[HOST], *command, output=folder / "log", cwd=folder, env=variables) as log:
        wait_for(lambda: "rosa is here" in log() and "Ctrl-C ends the host" in log(), log)
        yield folder


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_bare_machine_trains_after_one_line(
    *,
    installer: str,
    podman: Podman,
    base: str,
    uv: Path,
    spaces: dict[str, str],
    authority: Path,
    host: Path,
    tmp_path: Path,
) -> None:
    first_word = "uv" if installer == "uv" else "python3"
    (line,) = re.findall(rf"(?m)^  ({first_word} .+)$", (host / "log").read_text())
    home = tmp_path / "home"
    home.mkdir()
    name, run = f"potluck-bare-{installer}", f"bare-{installer}"
    mounts = [
        f"{home}:/root",
        f"{authority}:/authority.pem:ro",
        *([f"{uv}:/usr/local/bin/uv:ro"] * (installer == "uv")),
    ]
    options = [word for mount in mounts for word in ("--volume", mount)]
    options += [word for key, value in VARIABLES.items() for word in ("--env", f"{key}={value}")]
    options += ["--add-host", f"{PYTORCH}:{ADDRESS}", "--network", f"ns:/run/netns/{spaces[BARE]}", "--shm-size=256m"]
    log = home / "log"
    try:
        podman.run("run", "--detach", "--name", name, *options, base, "sleep", "infinity")
        before, began = received_bytes(spaces[BARE]), time.monotonic()
        podman.run("exec", "--detach", name, "sh", "-c", f"({line}) >~/log 2>&1")
        took: dict[str, float] = {}

        def mark(what: str, is_there: Callable[[], bool]) -> None:
            wait_for(
                is_there,
                lambda: log.read_text() if log.exists() else "nothing was printed",
                has_ended=log_says_error(log),
            )
            took[what] = time.monotonic() - began - sum(took.values())

        mark("environment", (home / "potluck-venv" / "bin" / "activate").exists)
        mark("install", (home / "potluck-venv" / "bin" / "potluck").exists)
        mark("join", lambda: log.exists() and f"joined {HOST}" in log.read_text())
        fetched = received_bytes(spaces[BARE]) - before
        mark("ready", lambda: f"{BARE} is here" in (host / "log").read_text())
        train = [sys.executable, "-m", "potluck", "train", *SMALL, "--max-steps", "20", "--experiment-name", run]
        variables = {**os.environ, "POTLUCK_HOME": str(host / "home")}
        command = ["ip", "netns", "exec", spaces[HOST], *train]
        trained = subprocess.run(
            command, cwd=host, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert trained.returncode == 0, trained.stdout + trained.stderr
        committed = first_commit(host / "experiments" / run / "events")
        took["first step"] = committed - (time.time() - (time.monotonic() - began)) - sum(took.values())
        total_s = sum(took.values())
        parts = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items())
        print(
            f"\n{installer}: {total_s:.1f} s from the pasted line to the first committed step, "
            f"{fetched / 1e6:.1f} MB received ({parts})"
        )
        again = podman.run(
            "exec", name, "sh", "-c", ". ~/potluck-venv/bin/activate && potluck --version && pip --version"
        )
        assert again
        shutil.copy(log, tmp_path / "printed")
    finally:
        podman.remove(name)
        shutil.rmtree(home, ignore_errors=True)
    if total_s > GOAL_S:
        print(f"more than {GOAL_S:.0f} s: this computer is slow or busy")


def log_says_error(log: Path) -> Callable[[], bool]:
    return lambda: log.exists() and re.search(r"(?m)^(error|ERROR|potluck: )", log.read_text()) is not None


def received_bytes(space: str) -> int:
    shown = subprocess.run(
        ["ip", "-n", space, "-s", "-json", "link", "show", "eth0"], capture_output=True, text=True, check=True
    )
    return int(json.loads(shown.stdout)[0]["stats64"]["rx"]["bytes"])


def first_commit(events: Path) -> float:
    """When the bare machine's worker committed its first step of the run."""
    (own,) = events.glob(f"{BARE}-*.jsonl")
    records = (json.loads(line) for line in own.read_text().splitlines())
    return float(next(one["time"] for one in records if one["event"]["type"] == "step_committed"))


def wait_for(
    is_there: Callable[[], bool],
    log: Callable[[], str],
    *,
    timeout_s: float = 400.0,
    has_ended: Callable[[], bool] = lambda: False,
) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_there():
        assert time.monotonic() < deadline, log()
        assert not has_ended(), log()
        time.sleep(0.1)


@contextmanager
def in_space(
    space: str, *arguments: str, output: Path, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> Iterator[Callable[[], str]]:
    """Run Python in a network namespace; gives a function that reads what was printed."""
    with output.open("w") as file:
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, sys.executable, *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield output.read_text
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write_certificates(folder: Path) -> None:
    """An authority, and a certificate for PyTorch's name that it has signed."""
    now = datetime.datetime.now(datetime.timezone.utc)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("authority", "server")}
    names = {"authority": "a test's authority", "server": PYTORCH}
    for name, key in keys.items():
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (names[name], names["authority"])
        )
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(PYTORCH)]), critical=False)
            .sign(keys["authority"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
