"""The user's own text: a file or a folder, and a fix for everything that can be wrong with it."""

from pathlib import Path

import pytest
import torch

from potluck.core.errors import DataError
from potluck.workloads.datasets import DataOptions, Splits, load_dataset
from potluck.workloads.datasets.windows import VOCABULARY_SIZE, WINDOW


def load(path: Path, num_samples: int | None = None) -> Splits:
    return load_dataset("text", DataOptions(data_dir=path, num_samples=num_samples, seed=0))


def test_the_last_tenth_of_a_file_is_held_out(tmp_path: Path) -> None:
    written = bytes(range(256)) * 10  # 20 windows
    (tmp_path / "mine.md").write_bytes(written + b"left over")
    splits = load(tmp_path / "mine.md")
    assert (splits.kind, splits.num_classes) == ("text", VOCABULARY_SIZE)
    assert (len(splits.train), len(splits.held_out)) == (18, 2)
    (tokens,) = splits.train.potluck_batch(torch.arange(18))
    assert tokens.dtype == torch.int64
    assert bytes(tokens.flatten().tolist()) == written[: 18 * WINDOW]
    assert bytes(splits.held_out[1][0].tolist()) == written[19 * WINDOW :]


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b" * 300)
    (tmp_path / "a.txt").write_text("a" * 100)
    (tmp_path / "notes.md").write_text("not text")
    splits = load(tmp_path)
    assert bytes(splits.train[0][0].tolist()) == b"a" * 100 + b"\0" + b"b" * 27


def test_fewer_samples_are_the_first_ones(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789abcdef" * 800)
    splits = load(tmp_path, num_samples=5)
    assert len(splits.train) == 5
    assert len(splits.held_out) == 10


def test_more_samples_than_there_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * WINDOW * 10)
    with pytest.raises(DataError, match="--num-samples of at most 9"):
        load(tmp_path, num_samples=10)


def test_text_that_cannot_be_used_says_how_to_give_some(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "short.txt").write_text("a" * (2 * WINDOW - 1))
    (tmp_path / "nothing.txt").write_text("")
    for name, problem in [
        ("absent.txt", "there is no text at"),
        ("empty", "holds no .txt file"),
        ("short.txt", "shorter than 256 bytes"),
        ("nothing.txt", "shorter than 256 bytes"),
    ]:
        with pytest.raises(DataError, match=problem) as raised:
            load(tmp_path / name)
        assert str(tmp_path / name) in str(raised.value)
        assert "--data-dir FILE.txt" in raised.value.fix
