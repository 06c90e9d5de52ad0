"""What the report says about the held-out loss in rounds."""

from potluck.events.types import BackendChosen, Evaluated
from potluck.report.round_price import round_price_text

ROUNDS = BackendChosen(step=1, backend="gloo", reason="no worker trains on a GPU", exchange="rounds", warm_up_steps=200)


def held_out(step, loss):
    return Evaluated(step=step, name="held_out", samples=10, values={"loss": loss}, seconds=1.0)


def test_the_loss_before_and_in_rounds():
    text = round_price_text(ROUNDS, [held_out(100, 2.5), held_out(200, 2.0), held_out(232, 2.02), held_out(600, 1.8)])
    assert text.startswith(
        "2.0000 at the end of the warm-up (step 200), 2.0200 at first in rounds (step 232), 1.8000 last"
    )
    assert text.endswith("it rose by 1.0 % when rounds began")


def test_without_evaluations_it_says_what_to_do():
    assert "run.evaluate" in round_price_text(ROUNDS, [held_out(100, 2.5)])
    assert round_price_text(None, []) == ""
    assert round_price_text(BackendChosen(step=1, backend="gloo", reason=""), [held_out(1, 2.0)]) == ""
