"""How long a run warms up before its first round, how many steps a round has, and when rounds do not pay.

The numbers come from 126 small training runs: rounds from random weights ruin the loss, fewer than a dozen rounds after
the warm-up cost more than they bring, and rounds of about 2,000 samples cost 1 to 3 % of loss.
"""

from potluck.core.errors import SettingsError

LEAST_ROUNDS = 12
_LEAST_WARM_UP = 200
_SHORT_RUN = 1000
_USUAL_SAMPLES = 2000
LEAST_STEPS, _MOST_STEPS = 16, 128
_MOST_EXCHANGE = 0.1  # the part of a round that its exchange may take


def warm_up_steps(last_step: int, wished: int | None) -> int:
    """The steps of exact training before the first round."""
    if wished is not None:
        return wished
    return last_step // 3 if last_step < _SHORT_RUN else max(_LEAST_WARM_UP, last_step // 6)


def round_steps(batch: int, *, step_s: float, exchange_s: float, wished: int | None = None) -> int:
    """The steps of a round: a power of two, so large that the exchange takes at most a tenth of the round.

    `step_s`: seconds of a step without exchange. `exchange_s`: seconds of one exchange, in the code of the rounds.
    """
    if wished is not None:
        return wished
    steps = LEAST_STEPS
    while steps < _MOST_STEPS and (steps * batch < _USUAL_SAMPLES or exchange_s > _MOST_EXCHANGE * steps * step_s):
        steps *= 2
    return steps


def outer_momentum(steps: int) -> float:
    """The momentum of the outer step: the longer the round, the more."""
    return 0.9 if steps >= LEAST_STEPS else 0.5


def check_enough_rounds(last_step: int, warm_up: int, steps: int) -> None:
    """Refuse a run with too few rounds after its warm-up."""
    num_rounds = (last_step - warm_up) / steps
    if num_rounds < LEAST_ROUNDS:
        raise SettingsError(
            f"the run has {last_step} steps, of which {warm_up} are the warm-up: {max(0, int(num_rounds))} rounds of "
            f"{steps} steps are left, and fewer than {LEAST_ROUNDS} cost more loss than they save time",
            fix="use --exchange int4 or train for more steps; to train in rounds all the same, give both --round-steps "
            "and --warm-up-steps",
        )
