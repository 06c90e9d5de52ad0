"""Text made on the spot that a model can learn: invented words, each followed by one of a few.

Within a word the next letter is nearly certain and between words there are four choices, so a good
model gets to about half a bit a byte where guessing costs eight.
"""

import torch
from torch import Tensor

from potluck.workloads.datasets.seeds import stream
from potluck.workloads.datasets.splits import DataOptions, Splits, num_held_out
from potluck.workloads.datasets.windows import VOCABULARY_SIZE, WINDOW, Windows

DEFAULT_NUM_SAMPLES = 10_000
NUM_WORDS = 64
NUM_FOLLOWERS = 4
SHORTEST, LONGEST = 2, 7  # letters in a word
CHUNK = 1000  # windows made at once, always whole: the first n are the same whatever n is


def synthetic_text(options: DataOptions) -> Splits:
    """Windows of an invented language; held-out ones are other sentences of the same language."""
    num_samples = options.num_samples or DEFAULT_NUM_SAMPLES
    return Splits(
        kind="text",
        num_classes=VOCABULARY_SIZE,
        train=_write(num_samples, options.seed, "train"),
        held_out=_write(num_held_out(num_samples), options.seed, "held-out"),
    )


def _write(count: int, seed: int, split: str) -> Windows:
    generator = stream(seed, "language")
    lengths = torch.randint(SHORTEST, LONGEST + 1, (NUM_WORDS,), generator=generator)
    letters = torch.randint(ord("a"), ord("z") + 1, (NUM_WORDS, LONGEST + 1), generator=generator)
    letters[torch.arange(NUM_WORDS), lengths] = ord(" ")
    followers = torch.randint(NUM_WORDS, (NUM_WORDS, NUM_FOLLOWERS), generator=generator)
    written = [
        _write_chunk(letters.to(torch.uint8), lengths, followers, stream(seed, split, start))
        for start in range(0, count, CHUNK)
    ]
    return Windows(torch.cat(written)[:count])


def _write_chunk(letters: Tensor, lengths: Tensor, followers: Tensor, generator: torch.Generator) -> Tensor:
    """Whole windows, written side by side one letter at a time; each starts with a word of its own."""
    text = torch.empty(WINDOW, CHUNK, dtype=torch.uint8)
    word = torch.randint(NUM_WORDS, (CHUNK,), generator=generator)
    place = torch.zeros(CHUNK, dtype=torch.int64)
    for step in range(WINDOW):
        text[step] = letters[word, place]
        choice = torch.randint(NUM_FOLLOWERS, (CHUNK,), generator=generator)
        done = place == lengths[word]
        word = torch.where(done, followers[word, choice], word)
        place = torch.where(done, 0, place + 1)
    return text.T.contiguous()
