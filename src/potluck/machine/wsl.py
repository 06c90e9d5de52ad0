"""WSL and the Windows around it: the networking mode in effect, .wslconfig, the adapters of Windows."""

import configparser
import json
import platform
from pathlib import Path
from typing import Any

from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Adapter, Windows, Wsl

_INTEROP = Path("/proc/sys/fs/binfmt_misc/WSLInterop")
_INTEROP_LATE = Path("/proc/sys/fs/binfmt_misc/WSLInterop-late")
_POWERSHELL = "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
_POWERSHELL_S = 12.0  # Windows takes seconds to start it
# One query, so that PowerShell starts once. It returns only what the doctor's checks need, and no user name.
_QUESTION = r"""
$ErrorActionPreference = 'SilentlyContinue'
$adapters = foreach ($a in Get-NetAdapter) {
  [pscustomobject]@{
    alias = $a.Name; is_up = $a.Status -eq 'Up'; bits = $a.ReceiveLinkSpeed; media = $a.NdisPhysicalMedium
    metric = (Get-NetIPInterface -InterfaceIndex $a.ifIndex -AddressFamily IPv4).InterfaceMetric
    profile = [string](Get-NetConnectionProfile -InterfaceIndex $a.ifIndex).NetworkCategory
    addresses = @((Get-NetIPAddress -InterfaceIndex $a.ifIndex -AddressFamily IPv4).IPAddress)
  }
}
$file = Join-Path $env:USERPROFILE '.wslconfig'
$config = $null
if (Test-Path $file) { $config = [Convert]::ToBase64String([IO.File]::ReadAllBytes($file)) }
[pscustomobject]@{
  build = [Environment]::OSVersion.Version.Build; adapters = @($adapters); wslconfig = $config
} | ConvertTo-Json -Depth 4 -Compress
"""
_WIRELESS_MEDIA = (1, 8, 9)  # NDIS: wireless LAN, WWAN, native 802.11


def is_wsl(release: str) -> bool:
    """Whether a kernel of this release is WSL's."""
    return "microsoft" in release.lower()


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
        version=2 if "WSL2" in release or "standard" not in release.lower() else 1,
        mode=mode,
        config_mode=config_mode,
        config_encoding=encoding,
        idle_timeout_ms=idle_timeout_ms,
        has_interop=has_interop,
    )
    return wsl, windows_from(answer) if answer else None, tuple(gaps)


def read_windows() -> tuple[Windows | None, tuple[str, ...]]:
    """Facts about Windows, on a machine that runs Windows itself, and what could not be read."""
    try:
        return windows_from(ask_windows("powershell.exe")), ()
    except NoAnswerError as error:
        return None, (str(error),)


def ask_windows(powershell: str) -> dict[str, Any]:
    """Everything about Windows that the doctor's checks need, from one PowerShell query."""
    text = ask([powershell, "-NoProfile", "-NonInteractive", "-Command", _QUESTION], timeout_s=_POWERSHELL_S)
    try:
        answer = json.loads(text.strip() or "{}")
    except ValueError:
        raise NoAnswerError(f"{powershell} answered something else: {text[:60]!r}") from None
    return answer if isinstance(answer, dict) else {}


def windows_from(answer: dict[str, Any]) -> Windows:
    """The Windows in PowerShell's answer, which may hold a single adapter in place of a list of one."""
    adapters = answer.get("adapters") or []
    adapters = adapters if isinstance(adapters, list) else [adapters]
    return Windows(
        build=answer.get("build"),
        adapters=tuple(
            Adapter(
                alias=str(one.get("alias", "")),
                is_up=bool(one.get("is_up")),
                is_wireless=one.get("media") in _WIRELESS_MEDIA or "wi-fi" in str(one.get("alias", "")).lower(),
                speed_mbit=int(one["bits"]) // 10**6 if one.get("bits") else None,
                metric=one.get("metric") if isinstance(one.get("metric"), int) else None,
                profile=str(one.get("profile") or ""),
                addresses=tuple(a for a in one.get("addresses") or () if isinstance(a, str)),
            )
            for one in adapters
        ),
    )


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
