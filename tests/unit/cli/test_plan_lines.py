"""What the terminal says of plans: who gets what, and every change of it, without a flood."""

from potluck.cli.plan_lines import PlanLines
from potluck.events.types import PlanChanged


def plan(reason="a step should be 9 % shorter", **shares):
    workers = {f"{machine}-1": share for machine, share in shares.items()}
    machines = {f"{machine}-1": machine for machine in shares}
    return PlanChanged(
        step=1, policy="dynamic", shares=workers, machines=machines, reason=reason, step_s=0.2, samples_per_s=212.4
    )


def test_each_change_says_who_gets_what_and_what_should_come_of_it():
    lines = PlanLines()
    lines.note(plan(rosa=40, fern=8))
    assert lines.due(0.0) == ["plan: rosa 40, fern 8 of 48; predicted 212 samples/s"]
    lines.note(plan(rosa=36, fern=12))
    assert lines.due(5.0) == []  # too soon after the last
    assert lines.due(11.0) == ["plan: rosa 40 -> 36, fern 8 -> 12 of 48; predicted 212 samples/s"]
    assert lines.due(30.0) == []
    lines.note(plan(rosa=48))
    assert lines.due(40.0) == ["plan: rosa 36 -> 48, fern 12 -> 0 of 48; predicted 212 samples/s"]


def test_plans_in_quick_succession_become_one_line_and_unchanged_shares_none():
    lines = PlanLines()
    lines.note(plan(rosa=40, fern=8))
    lines.due(0.0)
    for rosa in (39, 38, 37):
        lines.note(plan(rosa=rosa, fern=48 - rosa))
        assert lines.due(1.0) == []
    assert lines.due(12.0) == ["plan: rosa 40 -> 37, fern 8 -> 11 of 48; predicted 212 samples/s"]
    lines.note(plan(reason="", rosa=37, fern=11))  # newer predictions only
    assert lines.due(60.0) == []


def test_one_machine_needs_no_line():
    lines = PlanLines()
    lines.note(plan(rosa=48))
    assert lines.due(0.0) == []


def test_workers_of_one_machine_are_added_up():
    lines = PlanLines()
    two = PlanChanged(
        step=1, policy="static", shares={"oak-1": 10, "oak-2": 20, "elm-1": 18},
        machines={"oak-1": "oak", "oak-2": "oak", "elm-1": "elm"}, reason="x", step_s=0.0, samples_per_s=0.0,
    )  # fmt: skip
    lines.note(two)
    assert lines.due(0.0) == ["plan: oak 30, elm 18 of 48"]
