"""What may happen to a file: bytes that change, a file that is cut, emptied, replaced or made into something else."""

import os
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

Damage = Callable[[Path], None]


def damages() -> "st.SearchStrategy[Damage]":
    """Any one damage, to be done to a file."""
    return st.one_of(
        st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4).map(_flip),
        st.floats(0.0, 1.0).map(_cut),
        st.binary(max_size=300).map(_replace),
        st.sampled_from([b"", b"null", b"[]", b"{}", b'"x"', b"1e999", b"\xff\xfe", b"\0" * 4096, b"a: &a [*a]"]).map(
            _replace
        ),
        st.sampled_from([b"[" * 100_000, b'{"a":' * 50_000, b"- " * 20_000, b'{"event":' * 9999]).map(_replace),
        st.tuples(st.integers(0, 1 << 20), st.sampled_from([b"\x1b[2J", b"\xff", b"\n", b"\0", b"9" * 5000, b"-"])).map(
            _insert
        ),
        st.just(_make_folder),
        st.just(_make_pipe),
        st.just(_remove),
    )


def _flip(changes: list[tuple[int, int]]) -> Damage:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        for place, change in changes:
            if content:
                content[place % len(content)] ^= change
        path.write_bytes(content)

    return _named(damage, f"flip {changes}")


def _cut(part: float) -> Damage:
    return _named(lambda path: os.truncate(path, int(part * path.stat().st_size)), f"cut at {part}")


def _replace(content: bytes) -> Damage:
    def damage(path: Path) -> None:
        path.write_bytes(content)

    return _named(damage, f"replace by {content[:40]!r}")


def _insert(where: tuple[int, bytes]) -> Damage:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        place = where[0] % (len(content) + 1)
        path.write_bytes(content[:place] + where[1] + content[place:])

    return _named(damage, f"insert {where[1][:20]!r} at {where[0]}")


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def _make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _remove(path: Path) -> None:
    path.unlink()


def _named(damage: Damage, name: str) -> Damage:
    damage.__name__ = name
    damage.__qualname__ = name
    return damage
