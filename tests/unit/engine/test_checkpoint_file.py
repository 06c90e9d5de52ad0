import io
import pickle
import zipfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.errors import CheckpointError
from potluck.engine.checkpoints.checkpoint_file import check_whole, plain, read_checkpoint, write_checkpoint

STATE = {"format": 1, "model": {"weight": torch.arange(1000.0)}, "nested": [1, (2.5, "x", None, True)]}


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "a.pth"
    write_checkpoint(path, STATE)
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "deep" / "a.pth"
    assert write_checkpoint(path, STATE) == path.stat().st_size
    state = read_checkpoint(path)
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])
    assert state["nested"] == STATE["nested"]
    assert [file.name for file in path.parent.iterdir()] == ["a.pth"]


def test_the_file_is_an_ordinary_torch_and_zip_file(tmp_path, content):
    path = tmp_path / "a.pth"
    path.write_bytes(content)
    assert torch.load(path, weights_only=True)["format"] == 1
    assert torch.load(path, weights_only=True, mmap=True)["format"] == 1
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"potluck sha256 ")


@settings(max_examples=80)
@given(st.data())
def test_any_cut_or_flipped_bit_is_noticed(tmp_path_factory, content, data):
    path = tmp_path_factory.mktemp("damaged") / "a.pth"
    if data.draw(st.booleans(), label="cut"):
        path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    else:
        damaged = bytearray(content)
        damaged[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(damaged)
    with pytest.raises(CheckpointError):
        check_whole(path)


class Malicious:
    ran = False

    def __reduce__(self):
        return (exec, ("from tests.unit.engine import test_checkpoint_file as t; t.Malicious.ran = True",))


def test_a_file_cannot_run_code(tmp_path):
    path = tmp_path / "evil.pth"
    write_checkpoint(path, {"format": 1, "model": Malicious()})  # well formed, with a right checksum
    check_whole(path)
    with pytest.raises(CheckpointError, match="does not hold a Potluck checkpoint"):
        read_checkpoint(path)
    buffer = io.BytesIO()
    pickle.dump(Malicious(), buffer)
    path.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
    assert not Malicious.ran


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint .*nowhere\.pth"):
        read_checkpoint(tmp_path / "nowhere.pth")


def test_a_full_disk_says_where_and_leaves_no_litter(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CheckpointError, match="No space left") as caught:
        write_checkpoint(tmp_path / "a.pth", STATE)
    assert str(tmp_path) in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_does_not_change_with_the_model():
    weight = torch.zeros(3)
    copy = plain({"weight": weight})
    weight += 1
    assert copy["weight"].tolist() == [0, 0, 0]


def test_what_a_checkpoint_cannot_hold_is_named_by_its_place():
    with pytest.raises(CheckpointError, match=r"state\['schedulers'\]\[0\]\['f'\] is a function"):
        plain({"schedulers": [{"f": lambda: 1}]})
