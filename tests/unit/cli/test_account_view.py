"""The account on a terminal."""

from io import StringIO

from rich.console import Console

from potluck.cli.plan_tables import show_account
from potluck.report.account import Account, Loss


def test_it_says_achieved_predicted_and_where_the_rest_went():
    account = Account(
        num_steps=100,
        wall_s=20.0,
        accounted_s=20.0,
        samples_per_s=300.0,
        predicted_samples_per_s=315.0,
        predicted_error=0.03,
        solo_samples_per_s={"oak": 240.0, "elm": 80.0},
        losses=(
            Loss(cause="data_wait", machine="oak", seconds=0.5, waited_s=0.4, part=0.04),
            Loss(cause="exposed_exchange", machine="elm", seconds=0.25, part=0.0225),
        ),
        num_plan_changes=1,
        benched={"fern": "its link"},
        slowest_link="elm",
    )
    output = StringIO()
    show_account(Console(file=output, width=120), account)
    for words in ("300.0 samples/s over 100 steps", "93.8 % of the 320.0 samples/s", "5.0 % above measured"):
        assert words in output.getvalue()
    for words in ("waiting for data", "oak", "500 ms", "400 ms", "4.0 %", "elm's link", "fern was benched: its link"):
        assert words in output.getvalue()
