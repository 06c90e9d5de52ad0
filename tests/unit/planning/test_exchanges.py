"""What each mode of exchange should bring, and which of them is chosen."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potluck.core.exchange_options import EXCHANGES
from potluck.measuring.sources import exchange_of
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.codes import CODES
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.exchange_words import advice_text, explain_modes, price_text
from potluck.planning.exchanges import ModeOutlook, RunTerms, choose_mode, predict_modes
from potluck.planning.rounds import every_worker, plan_rounds


def link(mbit, latency_s=0.0):
    return LinkProfile(latency_s=latency_s, bandwidth_bytes_per_s=mbit * 125_000)


def worker(name, per_sample_s=0.01, fixed_s=0.005, **more):
    compute = ComputeProfile(fixed_s=fixed_s, per_sample_s=per_sample_s)
    return Worker(name=f"{name}-0", machine=name, compute=compute, **more)


def laptops(mbit, megabytes, *, latency_s=0.0):
    workers = (worker("fern", 0.02), worker("lily", 0.01), worker("rosa", 0.005))
    links = {one.machine: link(mbit, latency_s) for one in workers}
    return Cluster(workers=workers, links=links, exchange=exchange_of(int(megabytes * 1e6)))


def homes(megabytes, *, inside=1000, between=20):
    """Two homes with two machines each; their names alternate in the ring."""
    home = {"fern": 1, "lily": 0, "moss": 1, "rosa": 0}
    pairs = {
        frozenset(pair): link(inside if home[pair[0]] == home[pair[1]] else between) for pair in combinations(home, 2)
    }
    return Cluster(
        workers=tuple(worker(name) for name in home),
        links=dict.fromkeys(home, link(inside)),
        exchange=exchange_of(int(megabytes * 1e6)),
        pairs=pairs,
    )


def by_name(modes):
    return {mode.mode: mode for mode in modes}


def test_every_mode_that_a_user_can_name_is_predicted():
    modes = predict_modes(laptops(100, 4), RunTerms(batch=64))
    assert [mode.mode for mode in modes] == [name for name in EXCHANGES if name != "auto"]
    assert [mode.mode for mode in predict_modes(laptops(100, 4).of({"rosa"}), RunTerms(batch=64))] == ["exact"]


def test_a_slow_link_makes_codes_faster_and_a_fast_one_leaves_exact():
    slow = by_name(predict_modes(laptops(100, 6), RunTerms(batch=64, keep=("fern", "lily", "rosa"))))
    assert slow["exact"].samples_per_s < slow["fp16"].samples_per_s < slow["int8"].samples_per_s
    assert slow["int8"].samples_per_s < slow["int4"].samples_per_s < slow["rounds"].samples_per_s
    assert choose_mode(list(slow.values())).mode == "int8"
    assert choose_mode(list(slow.values()), loss_price=0.5).mode == "int4"
    assert choose_mode(list(slow.values()), loss_price=5).mode == "rounds"
    assert slow["int4"].wire_bytes == pytest.approx(6e6 * 4 / 3 * 66 / 512)
    assert (slow["exact"].limit, slow["rounds"].limit) == ("links", "compute")
    fast = predict_modes(laptops(10_000, 1), RunTerms(batch=64))
    assert choose_mode(fast, loss_price=100).mode == "exact"
    assert by_name(fast)["exact"].limit == "compute"


def test_coding_on_a_weak_machine_counts():
    strong = laptops(1000, 40)
    weak = Cluster(
        workers=(worker("fern", 0.02, coding_factor=5.0), *strong.workers[1:]),
        links=strong.links,
        exchange=strong.exchange,
    )
    terms = RunTerms(batch=64, keep=strong.machines)
    before, after = (by_name(predict_modes(one, terms)) for one in (strong, weak))
    assert before["exact"].samples_per_s == after["exact"].samples_per_s
    for code in ("int8", "int4"):
        longer_s = 64 / after[code].samples_per_s - 64 / before[code].samples_per_s
        assert longer_s == pytest.approx(4 * 40e6 * CODES[code].coding_s_per_byte)


@given(
    mbit=st.sampled_from([10, 20, 100, 1000]), megabytes=st.sampled_from([0.1, 1, 10, 100]), batch=st.integers(8, 512)
)
@settings(max_examples=20, deadline=None)
def test_rounds_are_powers_of_two_and_their_speed_follows_from_work_and_exchange(mbit, megabytes, batch):
    plan = plan_rounds(laptops(mbit, megabytes), batch, every_worker(laptops(mbit, megabytes)))
    assert plan.round_steps in (16, 32, 64, 128)
    assert sum(plan.shares) == batch
    assert plan.samples_per_s == pytest.approx(
        batch * plan.round_steps / (plan.round_steps * plan.step_s + plan.exchange_s)
    )
    assert plan.price_percent >= 0


def test_the_warm_up_is_part_of_the_speed_of_a_run():
    cluster = laptops(20, 10)
    unknown = by_name(predict_modes(cluster, RunTerms(batch=64)))["rounds"]
    known = by_name(predict_modes(cluster, RunTerms(batch=64, num_steps=3000)))["rounds"]
    assert known.warm_up_steps == 500
    assert unknown.warm_up_steps is None
    assert known.samples_per_s < known.steady_samples_per_s == unknown.samples_per_s
    trained = by_name(predict_modes(cluster, RunTerms(batch=64, num_steps=3000, warm_up_steps=0)))["rounds"]
    assert trained.samples_per_s == pytest.approx(trained.steady_samples_per_s)


def test_the_price_follows_the_weights_of_the_members():
    """0.9 % for each member more, by 1 / sum of squares; long rounds cost more."""
    equal = Cluster(workers=tuple(worker(name) for name in "abc"), links={}, exchange=exchange_of(1000))
    plan = plan_rounds(equal, 60, every_worker(equal), round_steps=32)
    assert plan.price_percent == pytest.approx(0.9 * 2)
    assert plan_rounds(equal, 60, every_worker(equal), round_steps=96).price_percent == pytest.approx(
        0.9 * 2 * 96 * 60 / 2000
    )
    unequal = plan_rounds(laptops(1000, 1), 64, every_worker(laptops(1000, 1)), round_steps=32)
    assert unequal.price_percent < 0.9 * 2


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"num_steps": 250}, "too few"),
        ({"has_batch_norm": True}, "BatchNorm"),
        ({"optimizer": "lion"}, "AdamW, Adam and SGD"),
    ],
)
def test_rounds_are_refused_where_they_were_never_shown_to_work(more, why):
    modes = predict_modes(laptops(20, 10), RunTerms(batch=64, **more))
    refusals = by_name(modes)["rounds"].refusals
    assert why in refusals[0].text
    assert refusals[0].holds_by_name != ("has_batch_norm" in more)
    assert choose_mode(modes, loss_price=100).mode not in ("rounds", "islands")
    assert any(line.startswith("no rounds: ") for line in explain_modes(modes, 0))


def test_a_machine_that_brings_next_to_nothing_is_left_out_of_rounds():
    workers = (worker("rosa", 0.001), worker("snail", 0.1))
    cluster = Cluster(
        workers=workers, links=dict.fromkeys(("rosa", "snail"), link(100)), exchange=exchange_of(1_000_000)
    )
    rounds = by_name(predict_modes(cluster, RunTerms(batch=64)))["rounds"]
    assert rounds.left_out == ("snail",)
    assert "0 % of the work" in rounds.refusals[0].text
    kept = by_name(predict_modes(cluster, RunTerms(batch=64, keep=("snail",))))["rounds"]
    assert kept.left_out == ()


# Islands


def test_machines_of_one_home_are_an_island():
    modes = by_name(predict_modes(homes(1.0), RunTerms(batch=64)))
    islands = modes["islands"]
    assert islands.islands == (("fern", "moss"), ("lily", "rosa"))
    assert islands.refusals == ()
    assert islands.price_percent == pytest.approx(0.9)
    assert islands.samples_per_s > 1.5 * modes["exact"].samples_per_s
    assert "between fern+moss and lily+rosa" in " ".join(explain_modes(list(modes.values()), 2))


def test_one_home_is_one_island_and_four_homes_are_none():
    alike = by_name(predict_modes(homes(0.1, between=1000), RunTerms(batch=64)))["islands"]
    assert "that is exact" in alike.refusals[0].text
    apart = by_name(predict_modes(homes(10.0, inside=5, between=5), RunTerms(batch=64)))["islands"]
    assert "that is rounds" in apart.refusals[0].text
    unmeasured = by_name(predict_modes(replace(homes(0.1), pairs={}), RunTerms(batch=64)))["islands"]
    assert "potluck profile" in unmeasured.refusals[0].text


def test_many_machines_are_merged_into_islands():
    names = [f"m{number:02}" for number in range(12)]
    pairs = {
        frozenset((one, other)): link(1000 if names.index(one) // 6 == names.index(other) // 6 else 20)
        for one, other in combinations(names, 2)
    }
    cluster = Cluster(
        workers=tuple(worker(name) for name in names),
        links=dict.fromkeys(names, link(1000)),
        exchange=exchange_of(400_000),
        pairs=pairs,
    )
    islands = by_name(predict_modes(cluster, RunTerms(batch=480)))["islands"].islands
    assert sorted(map(sorted, islands)) == [names[:6], names[6:]]


def test_what_crosses_a_link_between_homes_shares_it():
    """A ring that alternates between the homes crosses the uplink twice each way."""
    everybody = homes(1.0).is_active([1, 1, 1, 1])
    alternating = homes(1.0).wire_s(everybody)
    near = Cluster(
        workers=tuple(worker(name) for name in ("a1", "a2", "b1", "b2")),
        links={},
        exchange=exchange_of(1_000_000),
        pairs={
            frozenset(pair): link(1000 if pair[0][0] == pair[1][0] else 20)
            for pair in combinations(("a1", "a2", "b1", "b2"), 2)
        },
    )
    assert near.sites == (("a1", "a2"), ("b1", "b2"))
    assert alternating == pytest.approx(2 * near.wire_s(everybody))
    assert near.wire_s(everybody) == pytest.approx(1.5 * 1e6 / 2.5e6)


# Words


def mode(name, samples_per_s, price=0.0):
    return ModeOutlook(
        mode=name, samples_per_s=samples_per_s, steady_samples_per_s=0, limit="", wire_bytes=0, price_percent=price
    )


def test_ties_go_to_the_exact_mode_and_the_lower_price():
    assert choose_mode([mode("exact", 100), mode("int4", 104)]).mode == "exact"
    assert choose_mode([mode("exact", 100), mode("fp16", 150), mode("int4", 155)]).mode == "fp16"
    assert choose_mode([mode("exact", 100), mode("rounds", 300, 1.2)], 1.0).mode == "exact"
    assert choose_mode([mode("exact", 100), mode("rounds", 300, 1.2), mode("islands", 290, 0.5)], 2).mode == "islands"


def test_a_price_is_told_with_its_doubt():
    assert [price_text(mode("x", 1, price)) for price in (0, 0.5, 1.2, 1.8)] == [
        "none measurable",
        "about 0-1 %",
        "about 1-3 %",
        "about 1-4 %",
    ]


def test_auto_says_what_a_price_would_buy():
    line, *_ = explain_modes([mode("exact", 100), mode("int4", 230), mode("rounds", 410, 1.24)], 0)
    assert line.startswith("--exchange auto would take int4: 2.3x as fast as exact, price in loss: none measurable;")
    assert line.endswith(
        "with --loss-price 1.3 it would take rounds: 4.1x as fast as exact, price in loss: about 1-3 %"
    )


def test_the_price_and_the_speed_are_those_of_the_mode_that_is_named():
    line, *_ = explain_modes([mode("exact", 100), mode("rounds", 160, 1.8), mode("islands", 154, 0.9)], 0)
    assert line.endswith(
        "with --loss-price 0.9 it would take islands: 1.5x as fast as exact, price in loss: about 0-2 %"
    )


def test_advice_names_what_is_clearly_faster_only():
    modes = [mode("exact", 100), mode("int4", 230), mode("rounds", 410, 1.2)]
    assert advice_text(modes, 0.62, 100) == (
        "a step waits 62 % of its time for gradients; --exchange int4 should make it about 2.3x as fast; "
        "--exchange rounds about 4.1x as fast, for about 1-3 % of loss"
    )
    assert advice_text([mode("exact", 100), mode("int4", 110)], 0.35, 100) is None
    # With fewer machines exact would be as fast: those are benched without any option.
    assert advice_text([mode("exact", 230), mode("int4", 240)], 0.6, 100) is None
