"""Notes about the host that machines send each other through their gates, so that no host is needed to deliver them."""

import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

from potluck.core.errors import GateError
from potluck.gates.owner_line import OwnerLine

_AGAIN_S = 0.5


class SuccessionNote(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all notes; `term` is the one that the note is about."""

    term: int


class Canvass(SuccessionNote, frozen=True, kw_only=True):
    """The sender wants to be the host in this term, and asks for a vote."""

    is_trial: bool = False
    """Only asks whether the receiver would vote so: nobody's term changes, and no vote is given."""
    electorate: int  # the number of the newest electorate that the sender knows
    copy: int  # the number of the sender's copy of the host's state


class Vote(SuccessionNote, frozen=True, kw_only=True):
    """Answer to Canvass."""

    granted: bool
    is_trial: bool = False
    why: str = ""
    newest_term: int = 0
    """The newest term that the sender takes part in: a candidate needs a newer one."""


class HostIs(SuccessionNote, frozen=True, kw_only=True):
    """The sender is the host of this term."""


class WhoIsHost(SuccessionNote, frozen=True, kw_only=True):
    """Asks which host the receiver follows; `term` is of the host that the sender follows."""


class Follows(SuccessionNote, frozen=True, kw_only=True):
    """Answer to WhoIsHost: the sender follows, or is, the host of this term."""

    host: str


class Release(SuccessionNote, frozen=True, kw_only=True):
    """From the host of this term, which does not act any more: `to` shall be the next host.

    To that machine it is also the order to begin.
    """

    to: str
    newest_term: int = 0
    """The term that the sender has promised to that machine, which needs a newer one than any that is promised."""


Known = Canvass | Vote | HostIs | WhoIsHost | Follows | Release


def hear_notes(line: OwnerLine, take: Callable[[str, Known], None], is_over: threading.Event) -> None:
    """Give senders and notes that come to this machine's gate to `take`, until `is_over`; for a thread of its own."""
    last = 0
    while not is_over.is_set():
        try:
            heard = line.notes(last)
        except GateError:  # the gate is being restarted
            is_over.wait(_AGAIN_S)
            continue
        last = heard.last
        for sender, text in heard.notes:
            if (note := read_note(text)) is not None and not is_over.is_set():
                take(sender, note)


def write_note(note: Known) -> str:
    """The note as text."""
    return msgspec.json.encode(note).decode()


def read_note(text: str) -> Known | None:
    """The note, or None if it is not one that this version knows."""
    with suppress(msgspec.MsgspecError):
        note: Known = msgspec.json.decode(text, type=Known)
        return note
    return None
