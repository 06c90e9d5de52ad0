"""WSL: its version, the networking mode in effect, .wslconfig, and what it has of the GPU."""

import configparser
import platform
from pathlib import Path
from typing import Any

from potluck.core.environment import read_wsl_distribution
from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Windows, Wsl
from potluck.machine.windows import ask_windows, windows_from

_INTEROP = Path("/proc/sys/fs/binfmt_misc/WSLInterop")
_INTEROP_LATE = Path("/proc/sys/fs/binfmt_misc/WSLInterop-late")
_POWERSHELL = "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
_GPU_DEVICE = Path("/dev/dxg")
_CUDA_LIBRARIES = Path("/usr/lib/wsl/lib")


def is_wsl(release: str) -> bool:
    """Whether a kernel of this release is WSL's."""
    return "microsoft" in release.lower()


def version_of(release: str) -> int:
    """WSL's version from its kernel's release: 4.4.0-19041-Microsoft is 1, 5.15.167.4-microsoft-standard-WSL2 is 2."""
    return 2 if "standard" in release.lower() or "wsl2" in release.lower() else 1


def read_wsl() -> tuple[Wsl | None, Windows | None, tuple[str, ...]]:
    """WSL, the Windows around it, and what could not be read; all empty on a machine without WSL."""
    release = platform.release()
    if not is_wsl(release):
        return None, None, ()
    gaps: list[str] = []
    mode: str | None = None
    try:
        mode = ask(["wslinfo", "--networking-mode"]).strip().lower() or None
    except NoAnswerError as error:
        gaps.append(str(error))
    has_interop = _INTEROP.exists() or _INTEROP_LATE.exists()
    answer: dict[str, Any] = {}
    try:
        answer = ask_windows(_POWERSHELL)
    except NoAnswerError as error:
        gaps.append(str(error))
    raw = bytes_of(answer.get("wslconfig"))
    config_mode, idle_timeout_ms, encoding = read_wslconfig(raw)
    wsl = Wsl(
        version=version_of(release),
        distribution=read_wsl_distribution(),
        has_gpu_device=_GPU_DEVICE.exists(),
        has_cuda_library=any(_CUDA_LIBRARIES.glob("libcuda.so*")),
        mode=mode,
        config_mode=config_mode,
        config_encoding=encoding,
        idle_timeout_ms=idle_timeout_ms,
        has_interop=has_interop,
    )
    return wsl, windows_from(answer) if answer else None, tuple(gaps)


def read_wslconfig(raw: bytes | None) -> tuple[str | None, int | None, str | None]:
    """The networking mode and the idle timeout that .wslconfig sets, and the file's encoding."""
    if raw is None:
        return None, None, None
    encoding, codec = "ascii", "utf-8"
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw:
        encoding, codec = "utf-16", "utf-16"
    elif raw.startswith(b"\xef\xbb\xbf"):
        encoding, codec = "utf-8-bom", "utf-8-sig"
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(raw.decode(codec, errors="replace"))
    except configparser.Error:
        return None, None, "damaged"
    mode = parser.get("wsl2", "networkingmode", fallback="").strip().lower() or None
    timeout = parser.get("general", "instanceidletimeout", fallback="").strip()
    return mode, int(timeout) if timeout.lstrip("-").isdigit() else None, encoding


def bytes_of(encoded: str | None) -> bytes | None:
    """The bytes of a file that PowerShell sent as base64."""
    import base64  # noqa: PLC0415

    return None if encoded is None else base64.b64decode(encoded)
