"""Podman and buildah with storage and settings of their own, so that tests leave a user's containers alone."""

import configparser
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

ROOT = Path(__file__).parents[2]
# Outside of /tmp: the base image and the layers of a build are kept for the next run of the tests.
KEPT = Path("/var/tmp/potluck-containers")
STATE = Path("/run/potluck-containers")
BASE = "localhost/potluck-base:bookworm"
# Enough for `python3 -m venv` and pip, and nothing of Potluck's.
BASE_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates,iproute2"
TOOLS = ("podman", "buildah", "runc", "iptables", "mmdebstrap", "ip", "nsenter")
CERTIFICATES = Path("/etc/ssl/certs")
BUILD_S = 900.0


class ContainerError(AssertionError):
    """A container's command failed; the message holds the command and its output."""


def why_not() -> str | None:
    """Why containers cannot run on this computer; None if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "containers need Linux and root: their networks are namespaces of this computer"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    netavark = ("/usr/lib/podman/netavark", "/usr/libexec/podman/netavark")
    if not any(Path(path).exists() for path in netavark):
        missing.append("netavark")
    if missing:
        return f"not installed: {', '.join(missing)}; .ci/run names the packages"
    return None


@dataclass(frozen=True)
class Podman:
    """Runs podman and buildah; `variables` point them at the tests' own storage, runtime and limits."""

    variables: Mapping[str, str]
    mounts: Sequence[str]
    """pip.conf and the folders that it names, read-only, as values of --volume."""

    def run(self, *arguments: str, timeout_s: float = 120.0, network: str | None = None) -> str:
        """The standard output of `podman ARGUMENTS`, called inside the network namespace of that name."""
        return self.call(["podman", *arguments], timeout_s=timeout_s, network=network)

    def call(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 120.0,
        network: str | None = None,
        cwd: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """The standard output of a command that uses podman, with `more` environment variables."""
        inside = [] if network is None else ["nsenter", f"--net=/run/netns/{network}"]
        done = subprocess.run(
            [*inside, *command],
            env={**os.environ, **self.variables, **(more or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=cwd,
        )
        if done.returncode != 0:
            raise ContainerError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def volumes(self) -> list[str]:
        """Options of podman and buildah that let pip in a container install what pip on this computer installs."""
        return [word for mount in self.mounts for word in ("--volume", mount)]

    def build(self, tag: str, dockerfile: Path, context: Path, **arguments: str) -> str:
        """Build an image; layers of an earlier build are used again. Gives its id: another build may take the tag."""
        given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        isolation = ["--runtime", "runc", "--isolation=chroot", "--network", "host"]
        # Docker's format keeps HEALTHCHECK; --layers keeps the layers of pip for the next build.
        written = KEPT / f"built-{os.getpid()}"
        kept = ["--format", "docker", "--layers", "--tag", tag, "--iidfile", str(written)]
        command = ["buildah", "bud", *isolation, *kept, *self.volumes(), *given, "--file", str(dockerfile)]
        with held("build"):
            self.call([*command, str(context)], timeout_s=BUILD_S)
            name = written.read_text(encoding="utf-8").strip().removeprefix("sha256:")
            written.unlink()
        return name

    def forget_old_builds(self) -> None:
        """Remove images of earlier builds that no image of today is made of."""
        with held("build"):
            self.run("image", "prune", "--force", "--filter", "until=24h")

    def has_image(self, tag: str) -> bool:
        return tag in self.run("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def logs(self, name: str) -> str:
        """What a container has printed, on both streams."""
        done = subprocess.run(
            ["podman", "logs", name],
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout

    def wait_for(self, name: str, pattern: str, *, timeout_s: float = 90.0) -> re.Match[str]:
        """Wait until a container prints the pattern; fails with its output if it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while True:
            state = self.state(name)
            printed = self.logs(name)
            if found := re.search(pattern, printed):
                return found
            if state != "running" or time.monotonic() > deadline:
                raise ContainerError(f"{name} is {state} and has not printed {pattern!r}:\n{printed}")
            time.sleep(0.3)

    def state(self, name: str) -> str:
        """`running`, `exited`, or another state that podman knows."""
        state: str = json.loads(self.run("inspect", name))[0]["State"]["Status"]
        return state

    def remove(self, *names: str, network: str | None = None) -> None:
        """End and remove containers with their anonymous volumes; a name that does not exist is no error.

        `network` is the namespace in which they were started: podman removes their published ports where it is called.
        """
        if names:
            self.run("rm", "--force", "--volumes", "--time", "5", "--ignore", *names, network=network)


@contextmanager
def held(name: str) -> Iterator[None]:
    """Only one run of the tests on this computer builds at a time."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def set_up() -> Podman:
    """Write the settings, and make the base image unless it is kept from an earlier run."""
    KEPT.mkdir(parents=True, exist_ok=True)
    storage, containers = KEPT / "storage.conf", KEPT / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{KEPT}/storage"\nrunroot = "{STATE}"\n', encoding="utf-8"
    )
    # crun refuses a computer with both versions of cgroups; without CAP_SYS_RESOURCE no limit can be raised.
    containers.write_text(
        '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\nlog_driver = "k8s-file"\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{KEPT}/networks"\n',
        encoding="utf-8",
    )
    podman = Podman(
        {"CONTAINERS_CONF": str(containers), "CONTAINERS_STORAGE_CONF": str(storage)},
        [f"{path}:{place}:ro" for path, place in pip_files(KEPT / "pip.conf").items()],
    )
    with held("base"):
        if not podman.has_image(BASE):
            _make_base(podman)
    return podman


def _make_base(podman: Podman) -> None:
    """Debian with Python, by mmdebstrap: no registry of images has to be reached."""
    archive = KEPT / "base.tar"
    if not archive.exists():
        part = archive.with_name("base-part.tar")
        podman.call(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={BASE_PACKAGES}", "bookworm", str(part)],
            timeout_s=BUILD_S,
        )
        part.rename(archive)
    podman.run("import", str(archive), BASE, timeout_s=BUILD_S)


@dataclass
class _PipSettings:
    """The settings of pip that say where packages come from."""

    values: dict[str, list[str]] = field(default_factory=dict)

    def read(self, listing: str) -> None:
        """Take in the output of `pip config list`: lines of the form global.find-links='/opt/wheels'."""
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            key = name.rpartition(".")[2]
            if key in ("index-url", "extra-index-url", "find-links", "trusted-host", "cert", "default-timeout"):
                found = self.values.setdefault(key, [])
                found += [word for word in value.strip("'\"").replace("\\n", " ").split() if word not in found]

    def folders(self) -> set[Path]:
        """The folders of this computer that the settings name; an index's files lie beside its `simple`."""
        named = (word for key in ("index-url", "extra-index-url", "find-links") for word in self.values.get(key, []))
        paths = [Path(urlparse(word).path) for word in named if urlparse(word).scheme in ("", "file")]
        return {path.parent if path.name == "simple" else path for path in paths if path.exists()}


def pip_files(target: Path) -> dict[str, str]:
    """Write this computer's settings of pip to `target`; gives what to mount where in a container."""
    settings = _PipSettings()
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=60
    )
    settings.read(listed.stdout)
    written = configparser.RawConfigParser()
    written["global"] = {key: "\n".join(words) for key, words in settings.values.items()}
    with target.open("w", encoding="utf-8") as file:
        written.write(file)
    folders = {str(folder): str(folder) for folder in sorted(settings.folders())}
    if CERTIFICATES.exists() and "cert" in settings.values:
        folders[str(CERTIFICATES)] = str(CERTIFICATES)
    return {str(target): "/etc/pip.conf", **folders}
