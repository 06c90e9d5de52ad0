"""This user's services in systemd: whether there is a manager for them, and one unit's file and state."""

import getpass
import platform
from dataclasses import dataclass
from pathlib import Path

from potluck.core.environment import read_config_dir
from potluck.core.errors import ServiceError
from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.container import IMAGE_MANAGERS, read_container
from potluck.machine.wsl import is_wsl

_BOOTED = Path("/run/systemd/system")
_LINGER = Path("/var/lib/systemd/linger")
_PATIENCE_S = 120.0  # a host pauses its runs, and a machine ends its step, before it stops
_STATE = ("ActiveState", "SubState", "UnitFileState", "NRestarts", "MainPID", "Result")


def check_manager(instead: str) -> None:
    """Raise if this user has no manager of services; `instead` is the command that the service would keep running."""
    try:
        ask(["systemctl", "--user", "show-environment"], timeout_s=10)
    except NoAnswerError as error:
        raise ServiceError(
            f"systemd keeps no services for this user here: {error}", fix=_way_without_manager(instead)
        ) from None


def _way_without_manager(instead: str) -> str:
    if _BOOTED.is_dir():
        return (
            "log in as this user itself, not by su or sudo, and type it again; or first: "
            "export XDG_RUNTIME_DIR=/run/user/$(id -u)"
        )
    if is_wsl(platform.release()):
        return (
            "put the two lines [boot] and systemd=true into /etc/wsl.conf, then in PowerShell: wsl --shutdown; "
            "open Ubuntu and type it again"
        )
    if read_container() in IMAGE_MANAGERS:
        return f"in a container, let the container be kept: docker run --restart unless-stopped ... {instead}"
    return f"without systemd, start it by hand after every reboot: nohup {instead} > potluck.log 2>&1 &"


@dataclass(frozen=True, slots=True)
class UserUnit:
    """One unit of this user's manager."""

    name: str  # potluck-host.service

    @property
    def file(self) -> Path:
        return read_config_dir() / "systemd" / "user" / self.name

    def write(self, text: str) -> None:
        """Write the unit's file; its contents take effect at the next start."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(text, encoding="utf-8")
            self.file.chmod(0o600)
        except OSError as error:
            raise ServiceError(
                f"{self.file} cannot be written: {error.strerror}", fix=f"make {self.file.parent} yours"
            ) from None
        self._ask("daemon-reload")

    def start(self) -> None:
        """Start the unit, or start it again, now and with the user's manager."""
        self._ask("enable", self.name)
        self._ask("restart", self.name)

    def stop(self) -> None:
        self._ask("stop", self.name)

    def disable(self) -> None:
        """Let the unit run on, but not start with the user's manager."""
        self._ask("disable", self.name)

    def remove(self) -> None:
        """Stop the unit, and delete its file."""
        self._ask("disable", "--now", self.name)
        self.file.unlink(missing_ok=True)
        self._ask("daemon-reload")

    def state(self) -> dict[str, str]:
        """The unit's state as systemd names it."""
        shown = self._ask("show", "--property", ",".join(_STATE), self.name)
        return {name: value for name, _, value in (line.partition("=") for line in shown.splitlines())}

    def last_lines(self, number: int) -> list[str]:
        """The last lines that the unit printed, if there is a journal that this user may read."""
        try:
            command = ["journalctl", "--user", "--unit", self.name, "--lines", str(number), "--output", "cat"]
            return ask([*command, "--no-pager", "--quiet"], timeout_s=10).splitlines()
        except NoAnswerError:
            return []

    def _ask(self, *words: str) -> str:
        try:
            return ask(["systemctl", "--user", *words], timeout_s=_PATIENCE_S)
        except NoAnswerError as error:
            raise ServiceError(
                f"systemctl --user {' '.join(words)} failed: {error}", fix=f"see: systemctl --user status {self.name}"
            ) from None


def lingers() -> bool:
    """Whether this user's services start with the computer, and stay when the user logs out."""
    try:
        return (_LINGER / getpass.getuser()).exists()
    except (OSError, KeyError):
        return False
