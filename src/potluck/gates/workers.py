"""The Unix socket, for this user only, over which workers of this machine talk to its gate: one line of JSON each."""

import asyncio
import os
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path

import msgspec

from potluck.gates.gate import Gate
from potluck.gates.messages import (
    Applied,
    AskLinks,
    AskNotes,
    AskRates,
    AskTouch,
    Expose,
    OwnersMessage,
    OwnLinks,
    Promise,
    Said,
    Say,
    Settings,
)
from potluck.gates.rates import RateMeter
from potluck.gates.sockets import peer_user

_LONGEST_LINE = 1 << 26  # settings of thousands of machines


class WorkerSocket:
    """Conversations with workers; when a conversation ends, the gate withdraws the ports that it exposed."""

    def __init__(self, gate: Gate, path: Path) -> None:
        self._gate = gate
        self._path = path
        self._numbers = count(1)

    async def listen(self) -> None:
        """Serve workers until cancelled."""
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._converse, self._path, limit=_LONGEST_LINE)
        self._path.chmod(0o600)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()  # and do not wait until all workers have hung up

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, rates = next(self._numbers), RateMeter(self._gate)
        try:
            connection: socket.socket = writer.get_extra_info("socket")
            if peer_user(connection) != os.getuid():
                return
            while line := await reader.readline():
                match msgspec.json.decode(line, type=Expose | AskRates | OwnersMessage):
                    case Expose() as asked:
                        answer: msgspec.Struct = await self._gate.ports.expose(number, asked)
                    case AskRates():
                        answer = rates.look()
                    case message:
                        answer = await self._answer_owner(message)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError, asyncio.CancelledError):
            pass  # cancelled only when the gate ends, and Python 3.11 would print a traceback then
        finally:
            self._gate.ports.withdraw(number)
            with suppress(OSError):
                writer.close()

    async def _answer_owner(self, message: OwnersMessage) -> msgspec.Struct:
        """Answer the agent or the host of this machine."""
        gate = self._gate
        match message:
            case AskTouch(by_host=by_host):
                return gate.lease.touch(by_host=by_host)
            case Promise():
                return gate.lease.promise(message)
            case Say(to=machine, text=text):
                return Said(is_sent=gate.say(machine, text))
            case AskNotes(after=after):
                return await gate.notes.after(after)
            case AskLinks():
                return OwnLinks(links=gate.links().links, port=gate.port)
            case Settings():
                gate.update(message)
        return Applied()
