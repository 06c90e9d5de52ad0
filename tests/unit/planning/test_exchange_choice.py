"""A group chooses its mode of exchange, and a run that waits for gradients says once what another mode would bring."""

from dataclasses import replace

import pytest

from potluck.core.errors import PlanError
from potluck.events.types import Notice
from potluck.planning.codes import INT8
from potluck.planning.costs import Exchange, LinkProfile
from potluck.planning.exchanges import RunTerms
from potluck.planning.measured_exchange import RingMeasurement
from potluck.planning.replanning.cost_report import UNKNOWN_COST
from potluck.planning.replanning.exchange_choice import exchange_for
from potluck.planning.replanning.replanner import Replanner
from potluck.planning.replanning.setting import GroupSetting, WorkerIntroduction
from tests.unit.planning.test_replanner import PAIR, cost, of_kind, pair

SLOW = LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=12.5e6)
LINKS = {"bo": SLOW, "lily": SLOW}
TERMS = RunTerms(batch=64, num_steps=6000)


def group(**more):
    given = {"links": LINKS, "exchange": Exchange(num_bytes=4_000_000), **more}
    return replace(pair(cost(0.003), cost(0.003)), **given)


def test_auto_takes_what_is_fastest_for_the_price():
    choice = exchange_for(group(), "auto", TERMS, loss_price=0.5)
    assert choice.mode == "int4"
    assert choice.reason.startswith("--exchange auto would take int4")
    assert choice.round_steps is None
    dear = exchange_for(group(exchange=Exchange(num_bytes=20_000_000)), "auto", TERMS, loss_price=4)
    assert dear.mode == "rounds"
    assert dear.warm_up_steps == 1000
    assert dear.round_steps in (32, 64, 128)
    assert dear.islands == (("bo",), ("lily",))


def test_before_anything_is_measured_auto_is_exact_and_says_that_it_may_change():
    for setting in (group(links={}), replace(group(), costs=(UNKNOWN_COST, UNKNOWN_COST))):
        choice = exchange_for(setting, "auto", TERMS)
        assert (choice.mode, choice.is_measured) == ("exact", False)
        named = exchange_for(setting, "rounds", TERMS)
        assert (named.mode, named.round_steps, named.warm_up_steps, named.is_measured) == ("rounds", 32, 1000, False)


def test_a_ring_of_an_earlier_run_serves_without_measured_links_in_whatever_code_it_was():
    exact = RingMeasurement(machines=("bo", "lily"), work_s=0.1, exposed_s=0.32)
    coded = RingMeasurement(machines=("bo", "lily"), work_s=0.1, exposed_s=0.04, code="int8")
    for ring in (exact, coded):
        choice = exchange_for(group(links={}, kept_ring=ring), "auto", TERMS, loss_price=0.5)
        assert (choice.mode, choice.is_measured) == ("int4", True)


def test_a_mode_by_name_is_taken_unless_a_guard_refuses_it():
    assert exchange_for(group(), "int8", TERMS).mode == "int8"
    assert exchange_for(group(), "rounds", replace(TERMS, has_batch_norm=True)).mode == "rounds"
    with pytest.raises(PlanError, match="100 steps are too few") as told:
        exchange_for(group(), "rounds", replace(TERMS, num_steps=100))
    assert "--exchange int4" in told.value.fix
    assert exchange_for(group(), "rounds", replace(TERMS, round_steps=20, warm_up_steps=7)).round_steps == 20


def test_links_between_two_machines_reach_the_plan():
    near, far = (LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=rate) for rate in (1e8, 2e6))
    bo = WorkerIntroduction(cost=cost(0.001), peers={"lily": far, "away": near})
    lily = WorkerIntroduction(
        cost=cost(0.001), peers={"bo": replace(far, bandwidth_bytes_per_s=1.9e6)}, coding_factor=4.0
    )
    setting = GroupSetting.of(PAIR, [bo, lily], 64, Exchange(num_bytes=1_000_000))
    assert setting.pairs == {frozenset(("bo", "lily")): far}
    assert setting.coding_factors == (1.0, 4.0)


def advice_of(setting, waits_s, num_steps=60):
    replanner, events = Replanner().formed(setting, 0)
    for step in range(1, num_steps):
        reports = [cost(0.003, wait_s=waits_s), cost(0.003, wait_s=waits_s)]
        replanner, more = replanner.committed(reports, step)
        events = [*events, *more]
    return [
        event.text for event in of_kind(Notice, events) if "for gradients" in event.text and "benched" not in event.text
    ]


def test_a_run_that_waits_for_gradients_says_so_once():
    kept = frozenset(("bo", "lily"))
    (text,) = advice_of(group(keep=kept), 0.32)
    assert text.startswith("a step waits 7")
    assert "--exchange int8 should make it about" in text
    assert advice_of(group(keep=kept), 0.01) == []


def test_a_run_in_a_code_gets_no_advice():

    coded = Exchange(num_bytes=20_000_000, code=INT8)
    assert advice_of(group(keep=frozenset(("bo", "lily")), exchange=coded), 0.5) == []
