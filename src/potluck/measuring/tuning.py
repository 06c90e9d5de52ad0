"""How one machine trains one model: a choice among ways to do the same maths. tuning_trials.py finds it."""

from dataclasses import dataclass, field

from potluck.measuring import allocator

BF16 = "bf16"
"""Among the gains: what training in this precision would bring. It is never chosen, because its maths differs."""

_LEAST_TOLD = 1.005


@dataclass(frozen=True, slots=True)
class Tuning:
    """How this machine trains one model."""

    channels_last: bool = False
    """Whether images are passed to the model with their channels last in memory, as convolutions on CPUs want them."""
    keeps_memory: bool = False
    """Whether the allocator keeps freed memory for the next step."""
    is_compiled: bool = False
    """Whether torch.compile compiles the model."""
    gains: dict[str, float] = field(default_factory=dict)
    """How many times as fast each way was that was tried, whether it was taken or not."""

    def apply(self) -> None:
        """Set what belongs to the process."""
        if self.keeps_memory:
            allocator.keep_freed_memory()

    @property
    def changes_passes(self) -> bool:
        """Whether passes run otherwise than the script wrote them."""
        return self.channels_last or self.is_compiled

    @property
    def words(self) -> str:
        """What was chosen and what it brings: channels_last +31 %, allocator +9 %."""
        chosen = {"channels_last": self.channels_last, "allocator": self.keeps_memory, "compile": self.is_compiled}
        return ", ".join(_gain_words(way, self.gains[way]) for way, is_on in chosen.items() if is_on)

    @property
    def all_words(self) -> str:
        """Also what was tried and not chosen: channels_last +31 %; not taken: allocator +1 %."""
        taken = self.words
        left = ", ".join(
            f"{way} {100 * (gain - 1):+.0f} %" for way, gain in self.gains.items() if way != BF16 and way not in taken
        )
        parts = [taken or "PyTorch's defaults are the fastest way", f"not taken: {left}" if left else ""]
        if (gain := self.gains.get(BF16)) is not None:
            speed = f"{gain:.1f}x faster" if gain >= 1 else f"{1 / gain:.1f}x slower"
            parts.append(f"--mixed-precision bf16 would be {speed} here")
        return "; ".join(part for part in parts if part)


def _gain_words(way: str, gain: float) -> str:
    """An allocator is taken also if the trial's few samples showed no gain."""
    return f"{way} {100 * (gain - 1):+.0f} %" if gain >= _LEAST_TOLD else way
