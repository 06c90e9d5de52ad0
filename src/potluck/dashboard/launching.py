"""Starting the dashboard's server: on this machine alone, or wider with a password."""

import importlib.util
import ipaddress
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from potluck.core.environment import with_dashboard_password
from potluck.core.errors import ReportError

APP = Path(__file__).with_name("app.py")
_NEEDED = ("streamlit", "altair")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where the dashboard answers, and to whom."""

    address: str
    port: int
    password: str | None
    """None on this machine alone."""


def plan_service(address: str, port: int, password: str | None, host_password: str | None = None) -> Served:
    """Nothing is shown to other machines without a password: the one given, the host's, or one made now."""
    if is_local(address):
        return Served(address=address, port=port, password=password)
    return Served(address=address, port=port, password=password or host_password or secrets.token_urlsafe(9))


def is_local(address: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def serve(served: Served, runs_dir: Path) -> NoReturn:
    """Become the server: signals reach it, and nothing is left behind when it ends."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ReportError(
            f"the dashboard needs {', '.join(missing)}, which is not installed", fix="pip install 'potluck[dashboard]'"
        )
    command = [sys.executable, "-m", "streamlit", "run", str(APP), *_options(served), "--", str(runs_dir.absolute())]
    os.execve(sys.executable, command, with_dashboard_password(served.password))  # noqa: S606  no shell


def _options(served: Served) -> list[str]:
    values = {
        "server.address": served.address,
        "server.port": served.port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "theme.light.primaryColor": "#0072B2",  # each of its own: one for both would end following the system
        "theme.dark.primaryColor": "#56B4E9",
    }
    return [f"--{name}={value}" for name, value in values.items()]
