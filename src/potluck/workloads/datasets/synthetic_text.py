"""Synthetic text that a model can learn: invented words, each followed by one of a few others.

Consonants and vowels alternate, the beginning of a word leaves few possible ends, and only four words may follow a
word: a model learns these rules one after the other, from a loss of eight bits a byte to less than half a bit.
"""

import torch
from torch import Tensor

from potluck.workloads.datasets.seeds import stream
from potluck.workloads.datasets.splits import DataOptions, Splits, num_held_out
from potluck.workloads.datasets.windows import VOCABULARY_SIZE, WINDOW, TextWindows

DEFAULT_NUM_SAMPLES = 10_000
CONSONANTS, VOWELS = b"bdfgklmnprstvz", b"aeiou"
NUM_WORDS = 32
NUM_FOLLOWERS = 4
SHORTEST, LONGEST = 2, 7  # letters in a word
CHUNK = 1000  # windows made at once, always in whole chunks: the first n are the same for any number of samples


def load_synthetic_text(options: DataOptions) -> Splits:
    """Windows of an invented language; held-out ones are other sentences of the same language."""
    num_samples = options.num_samples or DEFAULT_NUM_SAMPLES
    return Splits(
        kind="text",
        num_classes=VOCABULARY_SIZE,
        train=_write(num_samples, options.seed, "train"),
        held_out=_write(num_held_out(num_samples), options.seed, "held-out"),
    )


def _write(count: int, seed: int, split: str) -> TextWindows:
    generator = stream(seed, "language")
    lengths = torch.randint(SHORTEST, LONGEST + 1, (NUM_WORDS,), generator=generator)
    words = _words(lengths, generator)
    followers = torch.randint(NUM_WORDS, (NUM_WORDS, NUM_FOLLOWERS), generator=generator)
    starts = range(0, count, CHUNK)
    written = [_write_chunk(words, lengths, followers, stream(seed, split, start)) for start in starts]
    return TextWindows(torch.cat(written)[:count])


def _words(lengths: Tensor, generator: torch.Generator) -> Tensor:
    """Letters of every word and the space after it: uint8 [word, LONGEST + 1]."""
    words = torch.empty(NUM_WORDS, LONGEST + 1, dtype=torch.uint8)
    for place in range(LONGEST + 1):
        letters = torch.tensor(list(VOWELS if place % 2 else CONSONANTS), dtype=torch.uint8)
        words[:, place] = letters[torch.randint(len(letters), (NUM_WORDS,), generator=generator)]
    words[torch.arange(NUM_WORDS), lengths] = ord(" ")
    return words


def _write_chunk(words: Tensor, lengths: Tensor, followers: Tensor, generator: torch.Generator) -> Tensor:
    """CHUNK windows, written in parallel one letter at a time; each window starts with a random word."""
    text = torch.empty(WINDOW, CHUNK, dtype=torch.uint8)
    word = torch.randint(NUM_WORDS, (CHUNK,), generator=generator)
    place = torch.zeros(CHUNK, dtype=torch.int64)
    for step in range(WINDOW):
        text[step] = words[word, place]
        choice = torch.randint(NUM_FOLLOWERS, (CHUNK,), generator=generator)
        done = place == lengths[word]
        word = torch.where(done, followers[word, choice], word)
        place = torch.where(done, 0, place + 1)
    return text.T.contiguous()
