"""Notes about the host that machines send each other through their gates, so that no host is needed to deliver them."""

from contextlib import suppress

import msgspec


class SuccessionNote(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all notes; `term` is the one that the note is about."""

    term: int


class Canvass(SuccessionNote, frozen=True, kw_only=True):
    """The sender wants to be the host in this term, and asks for a vote."""

    electorate: int  # the number of the newest electorate that the sender knows
    copy: int  # the number of the sender's copy of the host's state


class Vote(SuccessionNote, frozen=True, kw_only=True):
    """Answer to Canvass."""

    granted: bool
    why: str = ""


class HostIs(SuccessionNote, frozen=True, kw_only=True):
    """The sender is the host of this term."""


class Release(SuccessionNote, frozen=True, kw_only=True):
    """From the host of this term: `to` shall be the next host. To that machine it is also the order to begin."""

    to: str


Known = Canvass | Vote | HostIs | Release


def write_note(note: Known) -> str:
    """The note as text."""
    return msgspec.json.encode(note).decode()


def read_note(text: str) -> Known | None:
    """The note, or None if it is not one that this version knows."""
    with suppress(msgspec.MsgspecError):
        note: Known = msgspec.json.decode(text, type=Known)
        return note
    return None
