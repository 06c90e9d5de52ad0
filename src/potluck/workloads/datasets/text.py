"""The user's own text, byte by byte: a file, or a folder of .txt files."""

from pathlib import Path

from potluck.core.errors import DataError
from potluck.workloads.datasets.splits import DataOptions, Splits, num_held_out, take
from potluck.workloads.datasets.windows import VOCABULARY_SIZE, WINDOW, TextWindows, cut_windows

BETWEEN_FILES = b"\0"
"""A byte that text doesn't contain, so that a model can learn where a file ends."""

OWN_TEXT = "give your own text with --data-dir FILE.txt, or a folder that holds .txt files"


def load_text(options: DataOptions) -> Splits:
    """Windows of the user's text; the last tenth is held out."""
    path = options.data_dir.expanduser().resolve()
    windows = cut_windows(BETWEEN_FILES.join(_read(file) for file in _files(path)))
    if len(windows) < 2:
        raise DataError(
            f"the text in {path} is shorter than {2 * WINDOW} bytes: too short to train on one part and hold one out",
            fix=OWN_TEXT,
        )
    num_train = len(windows) - max(1, len(windows) // 10)
    held_out = windows[num_train:]
    if options.num_samples is not None:
        held_out = held_out[: num_held_out(options.num_samples)]
    return Splits(
        kind="text",
        num_classes=VOCABULARY_SIZE,
        train=TextWindows(windows[: take(f"the text in {path}", num_train, options.num_samples)]),
        held_out=TextWindows(held_out),
    )


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise DataError(f"there is no text at {path}", fix=OWN_TEXT)
    if path.is_file():
        return [path]
    # Sorted, because folders list their files in another order on another machine.
    files = sorted(file for file in path.glob("*.txt") if file.is_file())
    if not files:
        raise DataError(f"{path} holds no .txt file", fix=OWN_TEXT)
    return files


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(
            f"cannot read {file}: {error.strerror}", fix=f"check that you may read it: ls -l {file}"
        ) from error
