"""Older event files describe changes of the group in Notice sentences: this module reads these as GroupChanged."""

import re
from typing import Final

import msgspec

from potluck.events.types import GroupChanged, Notice, Record

MARK: Final = b" at step "
"""Every such sentence contains these bytes, so lines without them need no parsing here."""
_SENTENCE: Final = re.compile(
    r"(?:a worker of (?P<of>\S+) \((?P<worker>\S+)\)|(?P<machine>\S+)) (?P<verb>left|joined) at step "
    r"(?P<step>\d{1,15}); "
    r"(?P<machines>\d{1,9}) machines? go(?:es)? on \((?P<stall>\d{1,9}\.\d) s\)"
)


def read_old_notice(record: Record) -> Record:
    """The record; if its event is a Notice that describes a change of the group, with a GroupChanged event instead."""
    found = _SENTENCE.fullmatch(record.event.text) if type(record.event) is Notice else None
    if found is None:
        return record
    who = {found["of"]: [found["worker"]]} if found["of"] else {found["machine"]: []}
    has_left = found["verb"] == "left"
    changed = GroupChanged(
        step=int(found["step"]) + 1,  # the sentences name the last step before the change
        joined={} if has_left else who,
        left=who if has_left else {},
        num_machines=int(found["machines"]),
        reason="lost" if has_left else "joined",
        stall_s=float(found["stall"]),
    )
    return msgspec.structs.replace(record, event=changed)
