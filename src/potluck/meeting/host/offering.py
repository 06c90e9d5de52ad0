"""The host's own wheel, offered at its gate: built when the host starts, kept in a file that the gate sends."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from potluck.core.atomic import replacing
from potluck.gates.messages import HandedOut
from potluck.meeting.access.install_lines import OfferedWheel, release_of
from potluck.meeting.access.token import wheel_key
from potluck.meeting.host.own_wheel import NotInstalledError, build_wheel

_FILE = "own-wheel.whl"


def try_to_offer_wheel(
    folder: Path, token: bytes, versions: Mapping[str, str], tell: Callable[[str], None]
) -> OfferedWheel | None:
    """Build the wheel and write it to `folder`; None, with a printed reason, if Potluck is not installed as a package.

    A host without a wheel works as before: only machines that have Potluck can join it.
    """
    try:
        wheel = build_wheel()
    except NotInstalledError:
        tell(
            "Potluck runs here from a folder and is not installed, so there is no line for machines without Potluck\n"
            "  fix: in Potluck's folder: python -m pip install -e ."
        )
        return None
    with replacing(folder / _FILE) as file:
        os.fchmod(file.fileno(), 0o600)  # as everything in this folder
        file.write(wheel.content)
    return OfferedWheel(
        key=wheel_key(token), name=wheel.name, sha256=wheel.sha256, torch=release_of(versions.get("torch", ""))
    )


def as_handed_out(wheel: OfferedWheel | None, folder: Path) -> HandedOut | None:
    """The wheel as a gate's setting."""
    if wheel is None:
        return None
    return HandedOut(key=wheel.key, name=wheel.name, file=str((folder / _FILE).absolute()))
