"""Messages between an agent, its machine's sharing process and the workers, one line of JSON each."""

from typing import Annotated

import msgspec

MOST_LINE_BYTES = 1 << 20


class SharingMessage(msgspec.Struct, tag=True, forbid_unknown_fields=True, frozen=True):
    """Base of all messages; the tag distinguishes them."""


class FolderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that this machine has or gets."""

    name: str
    catalogue: str  # file that lists the folder's files and the hashes of their pieces
    source: str = ""  # the folder itself, on the machine that has it
    place: str = ""  # where it goes, on a machine that gets it


class SharingPeer(msgspec.Struct, frozen=True):
    """Another machine's sharing process, as this machine reaches it."""

    address: str
    port: int


# From the agent, and back


class SharingSettings(SharingMessage, frozen=True, kw_only=True):
    """What to share, and with whom. Only the peers change while the process lives."""

    address: str
    gate: str
    gate_run: str
    folders: tuple[FolderSettings, ...]
    peers: tuple[SharingPeer, ...] = ()


class SharingState(SharingMessage, frozen=True, kw_only=True):
    """How far the folders have arrived."""

    port: int
    have_bytes: int
    total_bytes: int
    is_ready: bool = False  # whether all files can be seen at their place, arrived or not
    trouble: str = ""  # what keeps files from arriving, in a sentence


# From a worker, and back


class Look(SharingMessage, frozen=True, kw_only=True):
    """Asks for a file's size."""

    folder: str
    path: str


class Want(SharingMessage, frozen=True, kw_only=True):
    """Asks for bytes of a file; the answer comes when they are here. Pieces that somebody waits for come first."""

    folder: str
    path: str
    start: int = 0
    end: int | None = None  # None: to the end of the file


class WantAll(SharingMessage, frozen=True, kw_only=True):
    """Asks for a whole folder; the answer comes when it is here."""

    folder: str


class Expect(SharingMessage, frozen=True, kw_only=True):
    """These samples of a dataset are needed soon, the first `num_now` of them in this step. Nothing is answered."""

    samples: Annotated[list[int], msgspec.Meta(max_length=100_000)]
    num_now: int
    num_samples: int


class Found(SharingMessage, frozen=True, kw_only=True):
    """Answer to Look and Want: the file's size, and around the wanted bytes all that is here."""

    size: int
    start: int = 0
    end: int = 0
    trouble: str = ""  # why no bytes can come at all


FromWorker = Look | Want | WantAll | Expect
