"""The host's part on a machine that has taken the host's place: started early, told on stdin when to serve.

python -m potluck.meeting.host.deputy ~/.potluck --gate SOCKET

The order is one line of JSON: the term, the socket to serve at, and the folders of runs that are on this machine.
When stdin ends, this process ends, too; after a goodbye it pauses its runs first.
"""

import argparse
import asyncio
import json
import os
import signal
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from potluck.core.atomic import write_secret
from potluck.gates.identity import load_or_make
from potluck.gates.loopback import lighthouse_address
from potluck.meeting.access.invitation import Invitation, fingerprint_of
from potluck.meeting.home import Home
from potluck.meeting.host.behind_gate import bind_service
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.meeting_point import MeetingPlace, MeetingPoint
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.host.restoring import is_restored, restore
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.state_copy import KeptCopy
from potluck.meeting.wire import GOODBYE


def main() -> None:
    """Wait for the order to serve, then serve until stdin ends or another machine is the host."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--gate", required=True)
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the agent
    order = sys.stdin.buffer.readline()
    if order.startswith(b"{"):
        asyncio.run(_serve(Home(options.home), options.gate, json.loads(order)))


async def _serve(home: Home, gate: str, order: dict[str, Any]) -> None:
    point = _open(home, gate, None if order["is_restored"] else (int(order["term"]), order["runs"]))
    loop = asyncio.get_running_loop()
    threading.Thread(target=_end_with_stdin, args=(loop, point), name="potluck-stdin", daemon=True).start()
    service = Path(order["service"])
    service.unlink(missing_ok=True)
    await point.serve(bind_service(service), lambda: None, _nothing)


async def _nothing() -> None:
    """The agent of this machine is this process's owner: there is none to end."""


def _end_with_stdin(loop: asyncio.AbstractEventLoop, point: MeetingPoint) -> None:
    if sys.stdin.buffer.read() != GOODBYE:
        os._exit(0)
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(point.end)


def _open(home: Home, gate: str, taken_over: tuple[int, dict[str, str]] | None) -> MeetingPoint:
    """The meeting point, with the state that this machine has copied from the host before.

    `taken_over`: the new term, and folders of runs on this machine; None if this machine was the host before.
    """
    identity = load_or_make(home.identity_dir)
    kept, ballots = KeptCopy(home.succession_dir, identity), BallotFile(home.succession_dir)
    orders, membership = ballots.ballot.orders, home.membership()
    assert kept.state is not None
    assert orders is not None
    assert membership is not None
    succession = orders.succession
    if taken_over is not None:
        term, own_runs = taken_over
        succession = succession.model_copy(update={"term": term})
        restore(home, kept.state, own_runs)
    elif orders.host != membership.machine:
        raise SystemExit(f"potluck host: {orders.host} is the host now, and not this machine")
    elif not is_restored(home, kept.state):
        restore(home, kept.state, {})  # the takeover has broken off: a full disk, a cut of the power
    roster = MachineRoster(home.host_dir / "roster.json")
    lighthouses = Lighthouses(lighthouse_address(roster.block), gate)
    _light(home, lighthouses)  # first of all: runs wait for nothing else
    fingerprint = fingerprint_of(ssl.PEM_cert_to_DER_cert(identity.certificate))
    token = bytes.fromhex(kept.state.token)
    facts = roster.machines[membership.machine].facts
    place = MeetingPlace(
        folder=home.host_dir,
        runs_dir=home.runs_dir,
        gate=gate,
        facts=facts,
        token=token,
        fingerprint=fingerprint,
    )
    own = next(one for one in orders.members if one.machine == membership.machine)
    line = Invitation(address=own.addresses[0], port=own.port, token=token, fingerprint=fingerprint)
    write_secret(home.invitation_file, f"potluck join {line}\n")
    reign = Reign(membership.machine, SuccessionRule(), succession)
    return MeetingPoint(place, roster, reign, ballots, _tell, lighthouses=lighthouses)


def _light(home: Home, lighthouses: Lighthouses) -> None:
    """Start the lighthouses of runs that go on, on the ports that their workers know."""
    for record in RunFiles(home.host_dir / "runs", Troubles(_tell)).read():
        if not record.has_ended and not record.task.is_plain:
            lighthouses.start(record.id, record.lighthouse_port)


def _tell(text: str) -> None:
    with suppress(OSError):
        print(f"potluck host: {text}", flush=True)  # noqa: T201  into the log that the agent gave


if __name__ == "__main__":
    main()
