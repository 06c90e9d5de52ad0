"""The account, and profiles of several machines, on a terminal."""

from io import StringIO

from rich.console import Console

from potluck.cli.account_tables import show_account, show_shares
from potluck.cli.plan_tables import show_profiles
from potluck.measuring.profile_store import StoredProfile
from potluck.meeting.questions import LinkSeen, LinksSwept
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.report.account import Account, Loss

ACCOUNT = Account(
    num_steps=100,
    wall_s=20.0,
    accounted_s=20.0,
    samples_per_s=300.0,
    predicted_samples_per_s=315.0,
    predicted_error=0.03,
    solo_samples_per_s={"oak": 240.0, "elm": 80.0},
    losses=(
        Loss(cause="data_wait", machine="oak", seconds=0.5, waited_s=0.4, part=0.04),
        Loss(cause="commit", machine="oak", seconds=0.25, part=0.0225),
        Loss(cause="exposed_exchange", machine="elm", seconds=0.25, part=0.0225),
    ),
    num_plan_changes=1,
    benched={"fern": "fern is benched: its link"},
    slowest_link="elm",
    speed_alone={"oak": 240.0, "elm": 80.0},
    samples={"elm": 1500, "oak": 4500},
)


def test_it_says_achieved_predicted_and_where_the_rest_went():
    account = ACCOUNT
    output = StringIO()
    show_account(Console(file=output, width=120), account, num_steps=120)
    for words in (
        "100 of 120 steps: those with a plan and the timings of every worker",
        "together   300.0 samples/s in these steps",
        "alone      320.0 samples/s, the sum of oak and elm when each trains alone\n",
        "efficiency 93.8 % of that sum",
        "predicted  315.0 samples/s by the plans, 5.0 % too high",
        "time that each machine lost itself, and that others lost by waiting for it:",
        "waiting for training data",
        "waiting for gradients from other machines",
        "commit vote: all workers agree that the step counts",
        "elm's link",
        "500 ms",
        "400 ms",
        "4.0 %",
        "fern is benched: its link",
    ):
        assert words in output.getvalue()
    output = StringIO()
    show_account(Console(file=output, width=120), account, most=1)
    assert "2 smaller losses" in output.getvalue()


def test_at_the_end_stands_who_did_how_much():
    output = StringIO()
    show_shares(Console(file=output, width=80), ACCOUNT)
    assert [line.split() for line in output.getvalue().splitlines()] == [
        ["machine", "samples", "share", "samples/s", "here", "samples/s", "alone"],
        ["oak", "4,500", "75.0", "%", "225.0", "240.0"],
        ["elm", "1,500", "25.0", "%", "75.0", "80.0"],
        ["fern", "0", "benched"],
    ]


def test_profiles_of_several_machines_fit_a_narrow_terminal():
    link = LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=12.5e6)
    profiles = [
        StoredProfile(
            machine=machine,
            device="cuda:0",
            model="resnet18-base",
            precision="no",
            compute=ComputeProfile(fixed_s=0.012, per_sample_s=0.003, memory_cap=cap),
            gradient_bytes=44_000_000,
            link=link,
        )
        for machine, cap in (("living-room", None), ("attic", 32))
    ]
    seen = LinkSeen(latency_s=1e-4, bytes_per_s=12.5e6, error=0.0)
    output = StringIO()
    links = LinksSwept(ring=seen, pairs={"living-room-attic": seen}, machines={})
    show_profiles(Console(file=output, width=80), profiles, links, 64)
    for words in (
        "living-room",
        "12 ms",
        "313.7",
        "every batch tried",
        "32 samples",
        "100 Mbit/s",
        "living-room-attic",
        "100 us",
    ):
        assert words in output.getvalue()
