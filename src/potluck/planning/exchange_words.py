"""Modes of exchange in words: what each costs in loss, what `--exchange auto` takes, and why others are refused."""

import math
from collections.abc import Iterator, Sequence

from potluck.core.words import counted
from potluck.planning.exchanges import ModeOutlook, choose_mode

_CLEARLY = 1.2  # a mode that is not faster than this is not worth a word


def price_text(mode: ModeOutlook) -> str:
    """The price in loss with its doubt."""
    if mode.price_percent <= 0:
        return "none measurable"
    low, high = mode.price_band
    return f"about {low}-{high} %"


def times_text(faster: float) -> str:
    """A ratio of speeds: 2.3x."""
    return f"{faster:.1f}x" if faster < 10 else f"{faster:.0f}x"


def explain_modes(modes: Sequence[ModeOutlook], loss_price: float) -> list[str]:
    """What `--exchange auto` would take, how rounds and islands would go, and which modes are refused."""
    if len(modes) < 2:
        return []
    return [explain_choice(modes, loss_price), *_explain_rounds(modes), *_explain_refusals(modes)]


def explain_choice(modes: Sequence[ModeOutlook], loss_price: float) -> str:
    """What `--exchange auto` would take and why, and what a higher price would buy."""
    exact, chosen = modes[0], choose_mode(modes, loss_price)
    if chosen.mode == exact.mode:
        why = "no other mode without a price in loss is more than 5 % faster"
    else:
        why = f"{times_text(chosen.samples_per_s / exact.samples_per_s)} as fast as exact, price in loss: "
        why += price_text(chosen)
    line = f"--exchange auto would take {chosen.mode}: {why}"
    best = choose_mode(modes, choose_mode(modes, float("inf")).price_percent)
    if best.price_percent <= loss_price or best.samples_per_s < _CLEARLY * chosen.samples_per_s:
        return line
    needed = math.ceil(10 * best.price_percent) / 10
    return (
        f"{line}; with --loss-price {needed:g} it would take {best.mode}: "
        f"{times_text(best.samples_per_s / exact.samples_per_s)} as fast as exact, price in loss: {price_text(best)}"
    )


def advice_text(modes: Sequence[ModeOutlook], waits: float, samples_per_s: float) -> str | None:
    """For a run that waits this part of its time for gradients: the faster modes; None if none is clearly faster.

    `samples_per_s` is the speed of the run now. Exact, `modes[0]`, may be faster without some machines.
    """
    now = max(samples_per_s, modes[0].samples_per_s)
    free, paid = choose_mode(modes), choose_mode(modes, float("inf"))
    offers = []
    if free.samples_per_s > _CLEARLY * now:
        faster = times_text(free.samples_per_s / samples_per_s)
        offers.append(f"--exchange {free.mode} should make it about {faster} as fast")
    if paid.price_percent > 0 and paid.samples_per_s > _CLEARLY * max(now, free.samples_per_s):
        faster = times_text(paid.samples_per_s / samples_per_s)
        offers.append(f"--exchange {paid.mode} about {faster} as fast, for {price_text(paid)} of loss")
    return f"a step waits {100 * waits:.0f} % of its time for gradients; {'; '.join(offers)}" if offers else None


def _explain_rounds(modes: Sequence[ModeOutlook]) -> Iterator[str]:
    for mode in modes:
        if mode.round_steps is None or mode.refusals:
            continue
        warm_up = ""
        if mode.warm_up_steps:
            warm_up = f"{counted(mode.warm_up_steps, 'step')} of warm-up in int4, then "
        line = f"{mode.mode}: {warm_up}one exchange every {mode.round_steps} steps"
        if mode.mode == "islands":
            line += f" between {' and '.join('+'.join(island) for island in mode.islands)}"
        yield f"{line}; {mode.steady_samples_per_s:,.1f} samples/s after the warm-up" if warm_up else line


def _explain_refusals(modes: Sequence[ModeOutlook]) -> Iterator[str]:
    for mode in modes:
        if mode.refusals:
            yield f"no {mode.mode}: {'; '.join(refusal.text for refusal in mode.refusals)}"
