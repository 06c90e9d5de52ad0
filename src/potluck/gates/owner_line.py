"""The agent's or the host's line to its machine's gate: notes to other machines, the host's lease, settings, links."""

import socket
from typing import TypeVar

import msgspec

from potluck.core.errors import GateError
from potluck.gates.messages import (
    Applied,
    AskLinks,
    AskNotes,
    AskTouch,
    Notes,
    OwnersMessage,
    OwnLinks,
    Promise,
    Promised,
    Said,
    Say,
    Settings,
    Touch,
)

_ANSWER_S = 3.0
_NOTES_S = 15.0  # the gate answers after 5 s when there is no note
_PIECE = 1 << 16
Answer = TypeVar("Answer", Applied, Notes, OwnLinks, Promised, Said, Touch)


class OwnerLine:
    """Questions to a gate, each over a connection of its own to the gate's Unix socket. Any thread may ask."""

    def __init__(self, path: str) -> None:
        self._path = path

    def touch(self, *, by_host: bool = False) -> Touch:
        """How long ago the host was heard, and whether this machine may act as the host."""
        return self._ask(AskTouch(by_host=by_host), Touch)

    def promise(self, term: int, candidate: str, *, is_released: bool = False, is_trial: bool = False) -> Promised:
        """Promise this machine's vote to a candidate, if the gate may; a trial only asks whether it would."""
        asked = Promise(term=term, candidate=candidate, is_released=is_released, is_trial=is_trial)
        return self._ask(asked, Promised)

    def say(self, machine: str, text: str) -> bool:
        """Send a note to another machine; False if no link to it is up."""
        return self._ask(Say(to=machine, text=text), Said).is_sent

    def notes(self, after: int) -> Notes:
        """Wait a while for notes of other machines after a number."""
        return self._ask(AskNotes(after=after), Notes, _NOTES_S)

    def notes_so_far(self) -> tuple[tuple[str, str], ...]:
        """The notes that have come, without waiting for more."""
        return self._ask(AskNotes(after=-1), Notes).notes

    def links(self) -> OwnLinks:
        return self._ask(AskLinks(), OwnLinks)

    def apply(self, settings: Settings) -> None:
        """Give the gate new settings."""
        self._ask(settings, Applied)

    def _ask(self, message: OwnersMessage, kind: type[Answer], patience_s: float = _ANSWER_S) -> Answer:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(patience_s)
                connection.connect(self._path)
                connection.sendall(msgspec.json.encode(message) + b"\n")
                received = b""
                while not received.endswith(b"\n"):
                    piece = connection.recv(_PIECE)
                    if not piece:
                        raise ConnectionResetError("the gate has gone")
                    received += piece
            return msgspec.json.decode(received, type=kind)
        except (OSError, msgspec.MsgspecError) as error:
            raise GateError(
                f"this machine's gate does not answer: {error}",
                fix="see what potluck join or potluck host prints on this machine",
            ) from error
