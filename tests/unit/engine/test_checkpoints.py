import threading
import time

import pytest
import torch

from potluck.core.checkpoint_names import checkpoint_files, checkpoint_name
from potluck.core.errors import CheckpointError
from potluck.engine.checkpoints import checkpoints
from potluck.engine.checkpoints.checkpoints import CheckpointWriter, newest_whole

STATE = {"weight": torch.zeros(3)}


def names(folder):
    return [path.name for path in checkpoint_files(folder)]


def save(folder, *saves, keep=10):
    writer = CheckpointWriter(folder, keep=keep)
    for epoch, step, complete in saves:
        writer.save(checkpoint_name(epoch, step, epoch_is_complete=complete), step, STATE)
    writer.wait()
    writer.close()


def test_the_newest_state_comes_first(tmp_path):
    save(tmp_path, (1, 9, False), (1, 10, True), (2, 11, False), (10, 100, True), (2, 20, True))
    assert names(tmp_path) == [
        "model_epoch_10.pth",
        "model_epoch_2.pth",
        "model_epoch_2_step_11.pth",
        "model_epoch_1.pth",
        "model_epoch_1_step_9.pth",
    ]


def test_the_last_ones_are_kept(tmp_path):
    save(tmp_path, *((1, step, False) for step in range(1, 6)), keep=2)
    assert names(tmp_path) == ["model_epoch_1_step_5.pth", "model_epoch_1_step_4.pth"]


def test_a_damaged_newer_file_does_not_push_out_a_new_one(tmp_path):
    (tmp_path / "model_epoch_9.pth").write_bytes(b"damaged")
    save(tmp_path, (1, 1, False), (1, 2, False), keep=1)
    assert "model_epoch_1_step_2.pth" in names(tmp_path)


def test_the_newest_whole_one_is_found_with_a_word_about_the_others(tmp_path):
    save(tmp_path, (1, 1, False), (1, 2, False), (1, 3, False))
    (tmp_path / "model_epoch_1_step_3.pth").write_bytes(b"")
    said = []
    found = newest_whole(tmp_path, said.append)
    assert found == tmp_path / "model_epoch_1_step_2.pth"
    assert len(said) == 1
    assert "model_epoch_1_step_3.pth is cut short" in said[0]
    assert newest_whole(tmp_path / "nowhere", said.append) is None


def test_writing_does_not_hold_up_training(tmp_path, monkeypatch):
    release = threading.Event()

    def slow_disk(path, state, write=checkpoints.write_checkpoint):
        release.wait(10)
        return write(path, state)

    monkeypatch.setattr(checkpoints, "write_checkpoint", slow_disk)
    writer = CheckpointWriter(tmp_path, keep=3)
    started = time.monotonic()
    assert writer.save("model_epoch_1.pth", 1, STATE) is None
    assert time.monotonic() - started < 1
    assert writer.poll() is None
    release.set()
    assert writer.wait().path.is_file()
    writer.close()


def test_a_failed_write_is_raised_in_the_training_loop(tmp_path):
    writer = CheckpointWriter(tmp_path / "file" / "folder", keep=3)
    (tmp_path / "file").write_text("in the way")
    writer.save("model_epoch_1.pth", 1, STATE)
    with pytest.raises(CheckpointError, match="cannot be written"):
        writer.wait()
    writer.close()


def test_leftovers_of_a_killed_process_are_cleared(tmp_path):
    (tmp_path / ".model_epoch_1.pth.123.tmp").write_bytes(b"half")
    CheckpointWriter(tmp_path, keep=3).close()
    assert list(tmp_path.iterdir()) == []
