"""Real environments with other versions of Python and torch, made once and kept in /var/tmp.

torch for other versions comes from the index as a CUDA build. It does not import without CUDA's libraries, which are
gigabytes, so all environments share one folder of these: torch 2.12 and 2.13 are built for the same CUDA.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = Path("/var/tmp/potluck-versions")
OTHER_TORCH = "2.12.1"
OWN_TORCH = metadata.version("torch").partition("+")[0]
PREFERRED = ((3, 12), (3, 10), (3, 13), (3, 11), (3, 14))
MOST_APART = 2
# Of torch's own dependencies, those that torch's libraries are linked with.
CUDA = (
    *("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85", "nvidia-cuda-nvrtc==13.0.88"),
    *("nvidia-cublas==13.1.1.3", "nvidia-cufft==12.0.0.61", "nvidia-cufile==1.15.1.6", "nvidia-curand==10.4.0.35"),
    *("nvidia-cusparse==12.6.3.3", "nvidia-nvjitlink==13.0.88", "nvidia-cudnn-cu13==9.20.0.48"),
    *("nvidia-cusparselt-cu13==0.8.1", "nvidia-nccl-cu13==2.29.7", "nvidia-nvshmem-cu13==3.4.5"),
)
PACKAGES_OF_TORCH = ("filelock", "typing-extensions", "setuptools<82", "sympy", "networkx", "jinja2", "fsspec")
PACKAGES_OF_TORCHFT = ("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")


@dataclass(frozen=True)
class Version:
    """The versions of one environment, and its Python."""

    python: str
    torch: str
    executable: Path


def find_other_python():
    """A Python of another minor version, from pyenv, the system or uv; None if there is none."""
    own = sys.version_info[:2]
    for major, minor in PREFERRED:
        if (major, minor) == own or abs(minor - own[1]) > MOST_APART:
            continue
        name = f"python{major}.{minor}"
        pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{major}.{minor}.*/bin/{name}"))
        for found in [*pyenv, Path("/usr/bin") / name, Path("/usr/local/bin") / name, *_from_uv(f"{major}.{minor}")]:
            if found.exists() and _succeeds(found, "-c", "import ensurepip, ssl, venv"):
                return found
    return None


def make_environments(other_python):
    """The environments beside the test's own: the other torch, the other Python, and both others."""
    own, other = f"{sys.version_info[0]}.{sys.version_info[1]}", other_python.name.removeprefix("python")
    base = Path(sys.base_prefix) / "bin" / f"python{own}"
    wanted = [(base, own, OTHER_TORCH), (other_python, other, OWN_TORCH), (other_python, other, OTHER_TORCH)]
    KEPT.mkdir(exist_ok=True)
    with (KEPT / "lock").open("w") as lock, ThreadPoolExecutor(3) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = pool.submit(_make_packages, other_python, other)
        torches = [pool.submit(_make_environment, *each) for each in wanted]
        cuda = pool.submit(_make_cuda, other_python)
        for made in torches:
            _link(made.result(), cuda.result(), packages.result())
        list(pool.map(_warm, [made.result() for made in torches]))
    return [Version(python, torch, KEPT / f"{python}-torch{torch}" / "bin" / "python") for _, python, torch in wanted]


def _make_environment(python, name, torch):
    """A virtual environment with torch alone, of the index's build."""
    with _made_once(KEPT / f"{name}-torch{torch}") as folder:
        if folder is not None:
            _call(python, "-m", "venv", folder)
            pip = (folder / "bin" / "python", *("-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile"))
            _call(*pip, "--no-deps", f"torch=={torch}")
            _call(*pip, "--no-deps", f"torchft=={metadata.version('torchft')}")
    return KEPT / f"{name}-torch{torch}"


def _make_packages(python, name):
    """What Potluck needs beside torch, for the other Python."""
    own = [each for each in metadata.requires("potluck") or [] if "extra ==" not in each and "torch" not in each]
    wanted = sorted([*own, *PACKAGES_OF_TORCH, *PACKAGES_OF_TORCHFT])
    kept = KEPT / f"{name}-packages-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]}"
    with _made_once(kept) as folder:
        if folder is not None:
            pip = (python, *("-m", "pip", "install", "--quiet", "--no-compile", "--target", folder))
            _call(*pip, *wanted)
    return kept


def _make_cuda(python):
    with _made_once(KEPT / "cuda") as folder:
        if folder is not None:
            pip = (python, *("-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", "--no-deps"))
            _call(*pip, "--target", folder, *CUDA)
    return KEPT / "cuda"


def _link(environment, cuda, packages):
    """Let an environment find CUDA's libraries, its packages, and this Potluck; the test's own Python has its own."""
    (site,) = environment.glob("lib/python*/site-packages")
    if not (site / "nvidia").exists():
        (site / "nvidia").symlink_to(cuda / "nvidia")
    is_own = site.parent.name == f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = [path for path in sys.path if path.endswith("site-packages")] if is_own else [packages]
    (site / "potluck.pth").write_text("".join(f"{place}\n" for place in (ROOT / "src", *places)))


def _warm(environment):
    """Import everything once, which compiles it: three machines that start at the same time would each do that."""
    if not (environment / "warm").exists():
        _call(environment / "bin" / "python", "-m", "potluck.probes.parity")
        (environment / "warm").touch()


@contextmanager
def _made_once(folder):
    """The folder to fill, which is kept only if nothing fails; None if it was filled before."""
    if folder.exists():
        yield None
        return
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    yield new
    new.rename(folder)


def _from_uv(version):
    uv = shutil.which("uv")
    done = uv and subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
    return [Path(done.stdout.strip())] if done and done.returncode == 0 else []


def _succeeds(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _call(*command):
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=plain)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
