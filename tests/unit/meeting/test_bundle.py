"""The same files give the same hash and come back as they were; what is not a bundle of ours writes nothing."""

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import BundleError
from potluck.meeting.transfer import bundle as bundles
from potluck.meeting.transfer.bundle import Bundle, BundleCache, pack, unpack

ENTRY = Path("train.py")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    fill(
        folder,
        {"train.py": b"print('hello')", "lib/model.py": b"x = 1", "run.sh": b"echo", "lib/data.bin": bytes(9999)},
    )
    (folder / "run.sh").chmod(0o755)
    return folder


def fill(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def content(folder):
    """Names, bytes and executable bits of all files below the folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in folder.rglob("*")
        if path.is_file()
    }


def archive(*members):
    """An archive of somebody who has not read our rules: (name, content) or a TarInfo."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as out:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                out.addfile(member, io.BytesIO(b"x" * member.size))
            else:
                header = tarfile.TarInfo(member[0])
                header.size = len(member[1])
                out.addfile(header, io.BytesIO(member[1]))
    return packed.getvalue()


def special(name, kind, target=""):
    header = tarfile.TarInfo(name)
    header.type = kind
    header.linkname = target
    return header


def test_a_folder_comes_back_as_it_was(project, tmp_path):
    packed = pack(project, ENTRY)
    there = unpack(packed.data, packed.hash, tmp_path / "there" / "code")
    assert content(there) == content(project)
    assert content(there)["run.sh"][1]
    assert not content(there)["train.py"][1]
    assert (packed.entry, packed.num_files, packed.left_out) == ("train.py", 4, ())
    assert packed.size_bytes == sum(len(data) for data, _ in content(project).values())
    assert [path.name for path in there.parent.iterdir()] == ["code"]


def test_times_and_owners_do_not_matter_but_all_else_does(project):
    before = pack(project, ENTRY)
    for path in project.rglob("*"):
        os.utime(path, (1, 1))
    (project / "train.py").chmod(0o600)
    assert pack(project, project / "train.py") == before, "not even a byte of the archive"
    hashes = {before.hash}
    (project / "train.py").chmod(0o744)
    hashes.add(pack(project, ENTRY).hash)
    (project / "train.py").write_text("print('bye')")
    hashes.add(pack(project, ENTRY).hash)
    (project / "run.sh").rename(project / "go.sh")
    hashes.add(pack(project, ENTRY).hash)
    assert len(hashes) == 4


NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"])
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF),
    min_size=1,
    max_size=40,
).filter(lambda name: len(os.fsencode(name)) < 200)


@settings(max_examples=60)
@given(names=st.lists(NAMES, max_size=5), data=st.binary(max_size=2000))
def test_any_name_and_content_survives(tmp_path_factory, names, data):
    top = tmp_path_factory.mktemp("names")
    long_name = "a" * 150 + "/" + "b" * 150 + "/c.py"
    fill(top / "project", {"train.py": b"", long_name: data, **{f"d/{name}_": data for name in names}})
    packed = pack(top / "project", ENTRY)
    there = unpack(packed.data, packed.hash, top / "there")
    assert content(there) == content(top / "project")


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("leads out of its folder", archive(("../evil.py", b"x"))),
        ("leads out of its folder", archive(("lib/../../evil.py", b"x"))),
        ("leads out of its folder", archive(("/tmp/evil.py", b"x"))),
        ("leads out of its folder", archive(("./lib//evil.py", b"x"))),
        ("leads out of its folder", archive(("", b"x"))),
        ("not a plain file", archive(special("passwd", tarfile.SYMTYPE, "/etc/passwd"))),
        ("not a plain file", archive(special("lib", tarfile.SYMTYPE, ".."), ("lib/evil.py", b"x"))),
        ("not a plain file", archive(special("hard", tarfile.LNKTYPE, "../../x"))),
        ("not a plain file", archive(special("null", tarfile.CHRTYPE))),
        ("not a plain file", archive(special("disk", tarfile.BLKTYPE))),
        ("not a plain file", archive(special("pipe", tarfile.FIFOTYPE))),
        ("not a plain file", archive(special("lib", tarfile.DIRTYPE))),
        ("twice", archive(("a.py", b"x"), ("a.py", b"y"))),
        ("twice", archive(("a", b"x"), ("a/b", b"y"))),
        ("twice", archive(("a/b", b"x"), ("a", b"y"))),
        ("not what its hash says", archive(("a.py", b"x"))),
        ("cannot be read", b""),
        ("cannot be read", b"not an archive"),
        ("cannot be read", gzip.compress(b"not an archive" * 100)),
        ("cannot be read", archive(("a.py", b"x" * 5000))[:-30]),
    ],
    ids=lambda value: value if isinstance(value, str) else "data",  # archives tell the time: no names for tests
)  # fmt: skip
def test_what_is_not_ours_is_refused_and_nothing_is_written(tmp_path, what, data):
    with pytest.raises(BundleError, match=what):
        unpack(data, "0" * 64, tmp_path / "a" / "b" / "code")
    assert list(tmp_path.iterdir()) == []


def test_bombs_are_refused(tmp_path, monkeypatch):
    long_header = tarfile.TarInfo("x")
    long_header.pax_headers = {"comment": "y" * 20_000_000}
    monkeypatch.setattr(bundles, "MAX_FILES", 100)
    for data in (
        archive(long_header),
        archive(("a", bytes(2_000_000))),
        archive(*[(f"f{number}", b"") for number in range(101)]),
    ):
        with pytest.raises(BundleError, match=r"more than it may|larger than it may"):
            unpack(data, "0" * 64, tmp_path / "code", limit_bytes=1_000_000)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=150)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255), inside=st.booleans())
def test_a_changed_byte_anywhere_is_refused_or_harmless(tmp_path_factory, place, value, inside):
    top = tmp_path_factory.mktemp("changed")
    fill(top / "project", {"train.py": b"print('hello')", "lib/a.py": b"x = 1"})
    packed = pack(top / "project", ENTRY)
    data = bytearray(gzip.decompress(packed.data) if inside else packed.data)
    data[place % len(data)] = value
    try:
        there = unpack(gzip.compress(data) if inside else bytes(data), packed.hash, top / "there")
    except BundleError:
        assert sorted(path.name for path in top.iterdir()) == ["project"]
    else:
        assert content(there) == content(top / "project")


def test_a_folder_that_is_too_big_names_the_biggest_files(project):
    fill(project, {"data/train.npy": bytes(3_000_000), "data/test.npy": bytes(1_000_000)})
    with pytest.raises(BundleError, match=r"biggest files: data/train\.npy \(2\.9 MB\), data/test\.npy") as caught:
        pack(project, ENTRY, limit_bytes=2_000_000)
    assert "echo '/data/train.npy' >> " in caught.value.fix
    (project / ".gitignore").write_text("/data/train.npy\n")
    assert pack(project, ENTRY, limit_bytes=2_000_000).num_files == 6


def test_a_place_that_is_taken_is_left_alone(project, tmp_path):
    packed = pack(project, ENTRY)
    (tmp_path / "code").mkdir()
    with pytest.raises(BundleError, match="already there"):
        unpack(packed.data, packed.hash, tmp_path / "code")


def test_a_failed_unpacking_leaves_nothing(project, tmp_path, monkeypatch):
    packed = pack(project, ENTRY)
    monkeypatch.setattr(bundles.shutil, "copyfileobj", full_disk)
    with pytest.raises(BundleError, match="No space left"):
        unpack(packed.data, packed.hash, tmp_path / "code")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project"]


def full_disk(*_):
    raise OSError(28, "No space left on device")


def test_the_cache_gives_back_what_is_whole_and_keeps_the_latest(project, tmp_path):
    cache = BundleCache(tmp_path / "cache", keep=2)
    made: list[Bundle] = []
    for number in range(3):
        (project / "train.py").write_text(f"print({number})")
        made.append(pack(project, ENTRY))
        assert cache.get(made[-1].hash) is None
        cache.put(made[-1].hash, made[-1].data)
        os.utime(tmp_path / "cache" / f"{made[-1].hash}.tar.gz", (number, number))
    assert [cache.get(each.hash) is not None for each in made] == [False, True, True]
    assert BundleCache(tmp_path / "cache").get(made[2].hash) == made[2].data
    file = tmp_path / "cache" / f"{made[2].hash}.tar.gz"
    file.write_bytes(file.read_bytes()[:-20])
    assert cache.get(made[2].hash) is None
    assert not file.exists()


def test_the_cache_refuses_what_its_hash_does_not_say(project, tmp_path):
    packed = pack(project, ENTRY)
    cache = BundleCache(tmp_path / "cache")
    for wrong in ("0" * 64, "../../evil", packed.hash.upper(), ""):
        with pytest.raises(BundleError, match="hash"):
            cache.put(wrong, packed.data)
    assert not (tmp_path / "cache").exists()
