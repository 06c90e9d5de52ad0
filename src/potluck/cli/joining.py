"""The terminal side of `potluck join`: where the invitation comes from, and the status line."""

import sys
import time
from collections.abc import Callable

from rich.live import Live
from rich.text import Text

from potluck.cli.terminal import Console
from potluck.core.errors import MeetingError
from potluck.meeting.access.invitation import Invitation, read_invitation, read_token
from potluck.meeting.client.discovery import HeardHost, hear_hosts
from potluck.meeting.client.returning import was_host
from potluck.meeting.home import Home, HostMembership

_LINE_EVERY_S = 10.0


class StatusLine:
    """One line that changes on a terminal; elsewhere it is printed again when its words change, or after a while."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal else None
        self._shown = ""
        self._shown_at = 0.0

    def __enter__(self) -> "StatusLine":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()

    def tell(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def show(self, text: str) -> None:
        """Change the status line."""
        if self._live is not None:
            self._live.update(Text(text))
            return
        words, now = "".join(c for c in text if not c.isdigit() and c not in ",."), time.monotonic()
        if words != self._shown or now - self._shown_at > _LINE_EVERY_S:
            if words != self._shown or "waiting" not in text:
                self.tell(text)
            self._shown, self._shown_at = words, now


def find_invitation(
    line: str | None, home: Home, tell: Callable[[str], None], line_of_variable: str | None = None
) -> Invitation | None:
    """The invitation: the pasted line, a line from stdin or POTLUCK_JOIN, or a host found by mDNS and a typed token.

    None if this machine has joined a host before and goes back to that host.
    """
    if line == "-":
        return read_invitation(sys.stdin.readline())
    if line is not None:
        return read_invitation(line)
    membership = home.membership()
    if line_of_variable is not None:
        invitation = _read_variable(line_of_variable, home)
        if membership is None or not _is_for(invitation, membership):
            return invitation
    if membership is not None and not membership.is_of_own_host:
        tell(f"this machine knows {membership.host} ({membership.address}:{membership.port})")
        return None
    if membership is not None and was_host(home, membership):
        tell("this machine was the host; asking the other machines who is the host now")
        return None
    tell("listening for hosts on this network")
    hosts = hear_hosts()
    if not hosts:
        raise MeetingError(
            "no host is heard on this network",
            fix="start one with potluck host, or paste the line that it prints: potluck join p1-...",
        )
    if not sys.stdin.isatty():
        raise MeetingError(
            f"{len(hosts)} host{'s are' if len(hosts) > 1 else ' is'} heard, but there is no terminal to ask at",
            fix="paste the line that potluck host prints, or give it on stdin: potluck join - < line.txt",
        )
    for number, host in enumerate(hosts, start=1):
        tell(f"  {number}  {host.name} at {host.address}:{host.port} (potluck {host.version})")
    return _ask_for_token(hosts)


def _read_variable(line: str, home: Home) -> Invitation:
    """The invitation of POTLUCK_JOIN; refused if its host has sent this machine away: a restart must not undo that."""
    try:
        invitation = read_invitation(line)
    except MeetingError as error:
        raise MeetingError(f"POTLUCK_JOIN: {error.args[0]}", fix=error.fix) from None
    if home.sent_away_by() == invitation.fingerprint.hex():
        raise MeetingError(
            "the host of POTLUCK_JOIN has sent this machine away",
            fix="to come back, type the line that potluck host prints: potluck join p1-...",
        )
    return invitation


def _is_for(invitation: Invitation, membership: HostMembership) -> bool:
    """Whether the line is of the host that this machine has joined, at the address that the machine knows."""
    there = (membership.fingerprint, membership.address, membership.port)
    return (invitation.fingerprint.hex(), invitation.address, invitation.port) == there


def _ask_for_token(hosts: list[HeardHost]) -> Invitation:
    """Ask for the host's line or its token. The line is safer: its fingerprint proves which host answers."""
    import typer

    answer = typer.prompt("the line that potluck host prints, or its token", hide_input=True).strip()
    if answer.startswith(("p1-", "potluck join")):
        return read_invitation(answer)
    number = typer.prompt("which host", default=1) if len(hosts) > 1 else 1
    if not 1 <= number <= len(hosts):
        raise MeetingError(f"there is no host {number}", fix=f"choose 1 to {len(hosts)}")
    host = hosts[number - 1]
    return Invitation(address=host.address, port=host.port, token=read_token(answer), fingerprint=host.fingerprint)
