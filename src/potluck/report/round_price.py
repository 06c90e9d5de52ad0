"""What rounds have cost or brought so far, by the held-out loss that the script itself has measured."""

from collections.abc import Iterable

from potluck.core.exchange_options import IN_ROUNDS
from potluck.events.types import BackendChosen, Evaluated


def round_price_text(chosen: BackendChosen | None, evaluations: Iterable[Evaluated]) -> str:
    """The held-out loss at the end of the warm-up against the first and the newest after it; empty without rounds.

    A price in loss would need the same run in exact mode; this shows whether the loss went on falling.
    """
    if chosen is None or chosen.exchange not in IN_ROUNDS:
        return ""
    losses = sorted((event.step, loss) for event in evaluations if (loss := event.values.get("loss")) is not None)
    before = [one for one in losses if one[0] <= chosen.warm_up_steps]
    after = [one for one in losses if one[0] > chosen.warm_up_steps]
    if not before or not after:
        return (
            "not measured: for that the script must call run.evaluate with a value named loss before and after step "
            f"{chosen.warm_up_steps}, where rounds begin"
        )
    told = [("at the end of the warm-up", before[-1]), ("at first in rounds", after[0]), ("last", after[-1])]
    shown = told if len(after) > 1 else told[:2]
    text = ", ".join(f"{loss:.4f} {when} (step {step})" for when, (step, loss) in shown)
    rose = after[0][1] / before[-1][1] - 1 if before[-1][1] > 0 else 0.0
    return f"{text}; it rose by {100 * rose:.1f} % when rounds began" if rose > 0 else text
