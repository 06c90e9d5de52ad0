"""Builds the stand-in accelerator with the compiler at hand, once for each version of torch and of the source."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_KEPT = Path("/var/tmp/potluck-standin")
_METADATA = "Metadata-Version: 2.1\nName: standin\nVersion: 0\n"
_ENTRY_POINTS = "[torch.backends]\nstandin = standin_device:register\n"


def has_compiler() -> bool:
    """Whether the device can be built here."""
    return shutil.which("g++") is not None


def standin_environment() -> dict[str, str]:
    """The variables with which a Python process sees two stand-in accelerators, standin:0 and standin:1.

    The first call on a computer compiles. More variables change the devices: STANDIN_COPY_BYTES_PER_S (copies between
    host and device), STANDIN_SECOND_SLOWNESS (a factor for standin:1), STANDIN_MEMORY_BYTES (of each device, for a
    process), STANDIN_WITHOUT_FLOAT64=1.
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(build()), str(_ROOT)]), "OMP_NUM_THREADS": "1"}


def build() -> Path:
    """A folder for PYTHONPATH with which `import torch` knows the device; compiling takes about a minute.

    Several processes may call this at once: one compiles, the others wait. A folder appears whole, under a name made of
    what is in it, and never changes.
    """
    torch = _torch_folder()
    source, module = _HERE / "standin.cpp", _HERE / "standin_device.py"
    compiled = _KEPT / _digest(source.read_bytes(), (torch / "version.py").read_bytes())
    folder = compiled / _digest(module.read_bytes())
    _KEPT.mkdir(exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not compiled.exists():
            with _fresh(compiled) as fresh:
                _compile(source, fresh / "standin.so", torch)
        if not folder.exists():
            with _fresh(folder) as fresh:
                (fresh / "standin.so").hardlink_to(compiled / "standin.so")
                (fresh / "standin-0.dist-info").mkdir()
                (fresh / "standin-0.dist-info/METADATA").write_text(_METADATA)
                (fresh / "standin-0.dist-info/entry_points.txt").write_text(_ENTRY_POINTS)
                shutil.copy(module, fresh)
    return folder


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"".join(contents)).hexdigest()[:16]


@contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    """An empty folder, which gets its name when all of its content is there."""
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    yield fresh
    fresh.rename(folder)


def _compile(source: Path, library: Path, torch: Path) -> None:
    includes = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    links = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10"]
    flags = ["-std=c++20", "-O0", "-fPIC", "-shared", "-w"]
    done = subprocess.run(
        ["g++", *flags, *includes, source, "-o", library, *links], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def _torch_folder() -> Path:
    """Where torch is, without importing it: this process shall not know the device."""
    from importlib.util import find_spec

    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
