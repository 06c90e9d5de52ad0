"""The lines that a user pastes on a machine without Potluck: each installs the host's wheel and joins the host."""

import re
from dataclasses import dataclass

from potluck.meeting.access.invitation import Invitation

VENV = "~/potluck-venv"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedWheel:
    """The host's wheel as other machines get it: where it is on the host's port, its hash, and the host's torch."""

    key: str
    name: str
    sha256: str
    torch: str = ""
    """The version of the host's torch; empty if it is no release, which no index has."""

    def url(self, address: str, port: int) -> str:
        """Where installers get the wheel; they compare its hash with the one in the URL."""
        return f"http://{address}:{port}/{self.key}/{self.name}#sha256={self.sha256}"

    def in_place(self, address: str, port: int) -> str:
        """The command that replaces another version of Potluck in an environment; torch stays as it is."""
        return f"python -m pip install '{self.url(address, port)}'"

    def requirements(self, address: str, port: int) -> str:
        """The words for `pip install`: the wheel, and torch in the host's version."""
        words = [f"'{self.url(address, port)}'"]
        return " ".join([*words, f"torch=={self.torch}"] if self.torch else words)


def release_of(version: str) -> str:
    """The release that a version of torch is a build of (2.13.0 for 2.13.0+cpu); empty for a version between two."""
    public = version.partition("+")[0]
    return public if _RELEASE.fullmatch(public) else ""


def install_lines(wheel: OfferedWheel, invitation: Invitation) -> tuple[str, str]:
    """Two lines to choose from: with uv, which picks the build of torch for the machine's GPU, and with pip.

    Both make or keep a virtual environment with pip in it, install there, and join.
    """
    what = wheel.requirements(invitation.address, invitation.port)
    activate, join = f". {VENV}/bin/activate", f"potluck join {invitation}"
    return (
        f"uv venv --seed --allow-existing {VENV} && {activate} && uv pip install --torch-backend auto {what} && {join}",
        f"python3 -m venv {VENV} && {activate} && pip install {what} && {join}",
    )
