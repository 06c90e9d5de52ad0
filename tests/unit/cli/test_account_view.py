"""The account, and profiles of several machines, on a terminal."""

from io import StringIO

from rich.console import Console

from potluck.cli.plan_tables import show_account, show_profiles
from potluck.measuring.profile_store import StoredProfile
from potluck.meeting.measuring_asks import LinkSeen, LinksSwept
from potluck.planning.costs import ComputeProfile, LinkProfile
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
        benched={"fern": "fern is benched: its link"},
        slowest_link="elm",
    )
    output = StringIO()
    show_account(Console(file=output, width=120), account)
    for words in ("300.0 samples/s over 100 steps", "93.8 % of the 320.0 samples/s", "5.0 % above measured"):
        assert words in output.getvalue()
    for words in ("waiting for data", "oak", "500 ms", "400 ms", "4.0 %", "elm's link", "fern is benched: its link"):
        assert words in output.getvalue()


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
    for words in ("living-room", "12 ms", "313.7", "any number", "32", "100 Mbit/s", "living-room-attic", "100 us"):
        assert words in output.getvalue()
