"""Builds the stand-in accelerator with the compiler at hand, once for each version of torch and of the source."""

import fcntl
import hashlib
import os
import shutil
import subprocess
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
    """A folder for PYTHONPATH with which `import torch` knows the device; building takes about a minute."""
    torch = _torch_folder()
    source, module = _HERE / "standin.cpp", _HERE / "standin_device.py"
    version = (torch / "version.py").read_bytes()
    key = hashlib.sha256(source.read_bytes() + module.read_bytes() + version).hexdigest()[:16]
    folder = _KEPT / key
    _KEPT.mkdir(exist_ok=True)
    with (_KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = _KEPT / f"{key}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            (fresh / "standin-0.dist-info").mkdir(parents=True)
            (fresh / "standin-0.dist-info/METADATA").write_text(_METADATA)
            (fresh / "standin-0.dist-info/entry_points.txt").write_text(_ENTRY_POINTS)
            _compile(source, fresh / "standin.so", torch)
            shutil.copy(module, fresh)
            fresh.rename(folder)
    return folder


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
