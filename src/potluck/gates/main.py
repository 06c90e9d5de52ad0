"""A gate's process.

    python -m potluck.gates.main --identity ~/.potluck/identity --socket PATH --listen FD,FD

The gate reads Settings as JSON lines from stdin, and writes the state of all links as JSON lines to stdout. When stdin
ends, the process that owns the gate has ended, and the gate ends, too.
"""

import argparse
import asyncio
import signal
import socket
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.core.kept_process import StateWriter, run_until_one_ends, stdin_lines
from potluck.gates.file_limit import raise_file_limit
from potluck.gates.gate import Gate
from potluck.gates.identity import load_or_make
from potluck.gates.messages import Settings
from potluck.gates.workers import WorkerSocket

_LOOK_S = 2.0
_SOON_S = 0.1
_LEASE_LOOK_S = 0.1


def main() -> None:
    """Run a gate until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--identity", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--listen", required=True, help="file descriptors of listening sockets")
    options = parser.parse_args()
    raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the owner
    listeners = [socket.socket(fileno=int(number)) for number in options.listen.split(",")]
    with suppress(asyncio.CancelledError, BrokenPipeError):
        asyncio.run(_run(options.identity, options.socket, listeners))


async def _run(identity: Path, path: Path, listeners: list[socket.socket]) -> None:
    has_changed = asyncio.Event()
    gate = Gate(load_or_make(identity), listeners, has_changed.set)
    await run_until_one_ends(
        _read_settings(gate),
        gate.listen(),
        WorkerSocket(gate, path).listen(),
        _write_links(gate, has_changed),
        _watch_lease(gate),
    )


async def _read_settings(gate: Gate) -> None:
    """Apply settings from stdin until it ends."""
    reader = await stdin_lines(1 << 26)
    while line := await reader.readline():
        gate.update(msgspec.json.decode(line, type=Settings))


async def _watch_lease(gate: Gate) -> None:
    """End connections to the lighthouses of a host whom not enough machines confirm any more."""
    while True:
        await asyncio.sleep(_LEASE_LOOK_S)
        gate.streams.cut_host()


async def _write_links(gate: Gate, has_changed: asyncio.Event) -> None:
    """Write the links when one has changed; also look every few seconds, since round trips change without notice."""
    states = StateWriter()
    while True:
        states.write(gate.links())
        has_changed.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(has_changed.wait(), _LOOK_S)
        await asyncio.sleep(_SOON_S)


if __name__ == "__main__":
    main()
