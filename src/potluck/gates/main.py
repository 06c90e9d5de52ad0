"""A gate's process.

    python -m potluck.gates.main --identity ~/.potluck/identity --socket PATH --listen FD,FD

Settings come as JSON lines on stdin, the state of all links goes out as JSON lines on stdout. When stdin ends, whoever
owns the gate is gone, and the gate with it.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.gates.file_limit import raise_file_limit
from potluck.gates.gate import Gate
from potluck.gates.identity import load_or_make
from potluck.gates.messages import Settings
from potluck.gates.workers import WorkerSocket

_TELL_S = 2.0
_SOON_S = 0.1


def main() -> None:
    """Be a gate until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--identity", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--listen", required=True, help="file descriptors of listening sockets")
    options = parser.parse_args()
    raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the owner
    listeners = [socket.socket(fileno=int(number)) for number in options.listen.split(",")]
    with suppress(asyncio.CancelledError, BrokenPipeError):
        asyncio.run(_live(options.identity, options.socket, listeners))


async def _live(identity: Path, path: Path, listeners: list[socket.socket]) -> None:
    has_changed = asyncio.Event()
    gate = Gate(load_or_make(identity), listeners, has_changed.set)
    parts = (_obey(gate), gate.listen(), WorkerSocket(gate, path).listen(), _tell(gate, has_changed))
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _obey(gate: Gate) -> None:
    """Take settings until nobody gives them any more."""
    reader = asyncio.StreamReader(limit=1 << 26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb"))
    while line := await reader.readline():
        gate.update(msgspec.json.decode(line, type=Settings))


async def _tell(gate: Gate, has_changed: asyncio.Event) -> None:
    """The links, when one of them has changed, and every few seconds for what is counted."""
    told, left = None, b""
    os.set_blocking(sys.stdout.fileno(), False)  # an owner that is stopped (Ctrl-Z) does not stop the gate
    while True:
        links = gate.links()
        if links != told and not left:
            left, told = msgspec.json.encode(links) + b"\n", links
        if left:
            with suppress(BlockingIOError):
                left = left[os.write(sys.stdout.fileno(), left) :]
        has_changed.clear()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(has_changed.wait(), _TELL_S)
        await asyncio.sleep(_SOON_S)


if __name__ == "__main__":
    main()
