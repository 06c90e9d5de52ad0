"""Starts the dashboard's server: for this machine alone, or for other machines with a password."""

import importlib.util
import ipaddress
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from potluck.core.environment import with_dashboard_password
from potluck.core.errors import ReportError
from potluck.core.pip_lines import install_extra

APP = Path(__file__).with_name("app.py")
_NEEDED = ("streamlit", "altair")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where the dashboard listens, and the password that visitors need."""

    address: str
    port: int
    password: str | None
    """None: no password is needed; only where no other machine can reach the address."""


def plan_service(address: str, port: int, password: str | None, host_password: str | None = None) -> Served:
    """An address that other machines can reach gets a password: the given one, the host's, or a new one."""
    if is_local(address):
        return Served(address=address, port=port, password=password)
    return Served(address=address, port=port, password=password or host_password or secrets.token_urlsafe(9))


def is_local(address: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def addresses_elsewhere(address: str, reachable: list[str]) -> list[str]:
    """Addresses that a browser on another machine can open, of this machine's `reachable` ones; none if it is local."""
    if is_local(address):
        return []
    return reachable if address in ("0.0.0.0", "::") else [address]  # noqa: S104  compared, not bound


def serve(served: Served, runs_dir: Path) -> NoReturn:
    """Replace this process by the server: signals reach the server directly, and no parent process is left behind."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ReportError(
            f"the dashboard needs {', '.join(missing)}, which is not installed", fix=install_extra("dashboard")
        )
    check_port(served.address, served.port)
    place = [served.address, str(served.port), str(runs_dir.absolute())]
    command = [sys.executable, "-m", "potluck.dashboard.server", *place]
    os.execve(sys.executable, command, with_dashboard_password(served.password))  # noqa: S606  no shell


def check_port(address: str, port: int) -> None:
    """Refuse a port that another program uses: that program's answers would be taken for the dashboard's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address, port))
        except OSError as error:
            raise ReportError(
                f"the dashboard cannot listen at {address}:{port}: {error.strerror}",
                fix=f"choose another port: potluck dashboard --port {port + 1 if port < _LAST_PORT else port - 1}",
            ) from None


def streamlit_options(address: str, port: int) -> list[str]:
    """Streamlit's options: no usage statistics, no file watcher, no browser is opened."""
    values = {
        "server.address": address,
        "server.port": port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "theme.light.primaryColor": "#0072B2",  # one for each theme: a common colour would stop following the system's
        "theme.dark.primaryColor": "#56B4E9",
    }
    return [f"--{name}={value}" for name, value in values.items()]
