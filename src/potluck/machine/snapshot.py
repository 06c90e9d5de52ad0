"""Takes all facts at once. A fact that cannot be read becomes a gap with a reason, never an exception."""

import os
import platform
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from potluck.core.environment import DEFAULT_PORT, read_environment, read_network_variables
from potluck.machine import (
    firewall,
    gpus,
    hardware,
    interfaces,
    listeners,
    loopback,
    names,
    nccl_settings,
    software,
    windows,
    wsl,
)
from potluck.machine.adapters import with_adapters
from potluck.machine.container import read_container
from potluck.machine.facts import Facts, System


def take_facts(*, names_wanted: Sequence[str] = (), with_torch: bool = True) -> Facts:
    """A snapshot of this machine; `names_wanted` are resolved along with its hostname and MASTER_ADDR."""
    environment, variables = read_environment(), read_network_variables()
    hostname = socket.gethostname()
    master = variables.get("MASTER_ADDR", "")
    port = int(variables["MASTER_PORT"]) if variables.get("MASTER_PORT", "").isdigit() else DEFAULT_PORT
    gaps: list[str] = []
    with ThreadPoolExecutor(max_workers=8) as pool:

        def later(title: str, probe: Callable[..., Any], otherwise: Any, *arguments: Any, **options: Any) -> Any:
            return pool.submit(_safely, title, gaps, otherwise, probe, *arguments, **options)

        torch_later = later("versions", software.read_software, None, with_torch=with_torch)
        windows_later = later("WSL", _read_windows_side, (None, None, ()))
        names_later = later("names", names.resolve, (), [hostname, master, *names_wanted])
        firewall_later = later("firewall", firewall.read_firewall, None)
        gpus_later = later("GPUs", gpus.read_gpus, ((), ""))
        found_gpus, gpu_gap = gpus_later.result()
        found_wsl, found_windows, windows_gaps = windows_later.result()
        found_interfaces = _safely("interfaces", gaps, (), interfaces.read_interfaces)
        facts = {
            "system": read_system(),
            "processor": _safely("processor", gaps, None, hardware.read_processor),
            "memory_bytes": _safely("memory", gaps, 0, hardware.read_memory_bytes),
            "gpus": found_gpus,
            "pci_displays": _safely("graphics cards", gaps, (), gpus.read_pci_displays),
            "interfaces": with_adapters(found_interfaces, found_windows if found_wsl else None),
            "routes": _safely("routes", gaps, (), interfaces.read_routes),
            "names": names_later.result(),
            "docker_names": _safely("hosts file", gaps, (), names.read_docker_names),
            "firewall": firewall_later.result(),
            "wsl": found_wsl,
            "windows": found_windows,
            "infiniband": _safely("InfiniBand", gaps, (), nccl_settings.infiniband_devices),
            "nccl_files": _safely(
                "NCCL's files", gaps, {}, nccl_settings.read_nccl_files, named=variables.get("NCCL_CONF_FILE", "")
            ),
            "shm": _safely("shared memory", gaps, None, _read_shm),
            "disks": _safely("disks", gaps, (), hardware.read_spaces, environment.runs_dir),
            "power": _safely("power", gaps, None, hardware.read_power),
            "software": torch_later.result(),
            "listeners": _safely("ports", gaps, (), listeners.read_listeners, [port]),
            "loopback": _safely("loopback", gaps, None, loopback.try_loopback),
            "has_ipv6": Path("/proc/net/if_inet6").exists() or not sys.platform.startswith("linux"),
        }
    gaps += [gap for gap in (gpu_gap, *windows_gaps) if gap]
    known = {name: value for name, value in facts.items() if value is not None}
    return Facts(machine=environment.machine, hostname=hostname, variables=variables, gaps=tuple(gaps), **known)


def _safely(
    title: str, gaps: list[str], otherwise: Any, probe: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    try:
        return probe(*arguments, **options)
    except Exception as error:  # noqa: BLE001  a probe that breaks must not hide what the others saw
        gaps.append(f"{title}: {type(error).__name__}: {error}")
        return otherwise


def read_system() -> System:
    """The operating system, the container around it, and whether this user is its administrator."""
    family = {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "linux")
    distribution = ""
    if family == "linux":
        try:
            distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
        except OSError:
            distribution = ""
    return System(
        family=family,
        release=platform.release(),
        distribution=distribution,
        container=read_container(),
        is_administrator=hasattr(os, "geteuid") and os.geteuid() == 0,
    )


def _read_shm() -> Any:
    return hardware.read_space(hardware.SHM) if hardware.SHM.exists() else None


def _read_windows_side() -> Any:
    if sys.platform == "win32":
        found, gaps = windows.read_windows()
        return None, found, gaps
    return wsl.read_wsl()
