"""Windows, as PowerShell describes it: adapters, graphics cards, other makers' firewalls and forwarded ports."""

import json
import re
from typing import Any

from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Adapter, ForwardedPort, Windows
from potluck.machine.gpus import PCI_VENDORS

_POWERSHELL_S = 12.0  # Windows takes seconds to start it
# One query, so that PowerShell starts once. It returns only what the doctor's checks need, and no user name. Forwarded
# ports come from the registry: the output of netsh is in the language of the user.
_QUESTION = r"""
$ErrorActionPreference = 'SilentlyContinue'
$adapters = foreach ($a in Get-NetAdapter) {
  [pscustomobject]@{
    alias = $a.Name; is_up = $a.Status -eq 'Up'; bits = $a.ReceiveLinkSpeed; media = $a.NdisPhysicalMedium
    metric = (Get-NetIPInterface -InterfaceIndex $a.ifIndex -AddressFamily IPv4).InterfaceMetric
    profile = [string](Get-NetConnectionProfile -InterfaceIndex $a.ifIndex).NetworkCategory
    addresses = @((Get-NetIPAddress -InterfaceIndex $a.ifIndex -AddressFamily IPv4).IPAddress)
    sleep = [string](Get-NetAdapterPowerManagement -Name $a.Name).AllowComputerToTurnOffDevice
  }
}
$guards = foreach ($class in 'FirewallProduct', 'AntiVirusProduct') {
  foreach ($g in Get-CimInstance -Namespace root/SecurityCenter2 -ClassName $class) {
    [pscustomobject]@{ name = $g.displayName; state = $g.productState }
  }
}
$key = Get-Item 'HKLM:\SYSTEM\CurrentControlSet\Services\PortProxy\v4tov4\tcp'
$forwarded = foreach ($name in $key.Property) { "$name $($key.GetValue($name))" }
$file = Join-Path $env:USERPROFILE '.wslconfig'
$config = $null
if (Test-Path $file) { $config = [Convert]::ToBase64String([IO.File]::ReadAllBytes($file)) }
[pscustomobject]@{
  build = [Environment]::OSVersion.Version.Build; adapters = @($adapters); wslconfig = $config
  displays = @((Get-CimInstance -ClassName Win32_VideoController).PNPDeviceID)
  guards = @($guards); forwarded = @($forwarded)
} | ConvertTo-Json -Depth 4 -Compress
"""
_WIRELESS_MEDIA = (1, 8, 9)  # NDIS: wireless LAN, WWAN, native 802.11
_GUARD_IS_ON = 0x1000  # of a product's state in the Windows Security Center
_FORWARDED = re.compile(r"(\S+)/(\d+) (\S+)/(\d+)")


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
    """The Windows in PowerShell's answer, which may hold a single thing in place of a list of one."""
    return Windows(
        build=answer.get("build"),
        adapters=tuple(_adapter(one) for one in _listed(answer.get("adapters"))),
        displays=tuple(vendor for one in _listed(answer.get("displays")) if (vendor := _vendor(str(one)))),
        guards=_guards(_listed(answer.get("guards"))),
        forwarded_ports=tuple(
            ForwardedPort(
                listen_address=found[1], listen_port=int(found[2]), connect_address=found[3], connect_port=int(found[4])
            )
            for one in _listed(answer.get("forwarded"))
            if (found := _FORWARDED.fullmatch(str(one)))
        ),
    )


def _listed(given: Any) -> list[Any]:
    several = given if isinstance(given, list) else [given]
    return [one for one in several if one is not None]


def _adapter(one: dict[str, Any]) -> Adapter:
    return Adapter(
        alias=str(one.get("alias", "")),
        is_up=bool(one.get("is_up")),
        is_wireless=one.get("media") in _WIRELESS_MEDIA or "wi-fi" in str(one.get("alias", "")).lower(),
        speed_mbit=int(one["bits"]) // 10**6 if one.get("bits") else None,
        metric=one.get("metric") if isinstance(one.get("metric"), int) else None,
        profile=str(one.get("profile") or ""),
        addresses=tuple(a for a in _listed(one.get("addresses")) if isinstance(a, str)),
        may_sleep={"enabled": True, "disabled": False}.get(str(one.get("sleep") or "").lower()),
    )


def _vendor(device: str) -> str | None:
    r"""The vendor of a graphics card from its id in Windows, which is the same without a driver: PCI\VEN_10DE&..."""
    found = re.search(r"VEN_([0-9A-Fa-f]{4})", device)
    return PCI_VENDORS.get(f"0x{found[1].lower()}") if found else None


def _guards(products: list[Any]) -> tuple[str, ...]:
    """Names of the active products; Microsoft's own are left out, since the firewall of Windows has its own checks."""
    active = [
        str(one.get("name") or "")
        for one in products
        if isinstance(one, dict) and isinstance(one.get("state"), int) and one["state"] & _GUARD_IS_ON
    ]
    return tuple(dict.fromkeys(name for name in active if name and not re.match(r"Windows |Microsoft ", name)))
