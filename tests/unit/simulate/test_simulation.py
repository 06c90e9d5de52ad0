"""Simulated runs: the laws that time, membership and plans follow."""

import json
import statistics
import time
from dataclasses import replace

import pytest

from potluck.core.errors import SettingsError
from potluck.core.run_folder import RunFolder
from potluck.events.types import TrainingBegan
from potluck.measuring.sources import exchange_of
from potluck.meeting.transfer.run_tail import write_summaries
from potluck.planning.cluster import Cluster, Worker
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.exchanges import RunTerms, predict_modes
from potluck.planning.plan import make_plan
from potluck.report.compare import compare, table
from potluck.report.story import tell
from potluck.report.view import read_run
from potluck.simulate.reading import read_losses, read_sites, read_slow_downs
from potluck.simulate.recording import record
from potluck.simulate.scenario import Chances, MachineLoss, Scenario, SlowDown, WantedRun, Wires
from potluck.simulate.simulation import Simulation, simulate
from potluck.simulate.writing import RunWriter, rows_of


def cluster_of(*per_sample_s, rate=1.25e8, spread=0.0, num_bytes=1_600_000, latency_s=1e-4):
    workers = tuple(
        Worker(
            name=f"m{index:04d}-0",
            machine=f"m{index:04d}",
            compute=ComputeProfile(fixed_s=0.01, per_sample_s=each_s, spread=spread),
        )
        for index, each_s in enumerate(per_sample_s)
    )
    links = {one.machine: LinkProfile(latency_s=latency_s, bandwidth_bytes_per_s=rate) for one in workers}
    return Cluster(workers=workers, links=links, exchange=exchange_of(num_bytes))


THREE = cluster_of(0.002, 0.004, 0.008)
STEADY = Wires(variation=0.0)


def wanted(**more):
    return WantedRun(**{"batch": 128, "num_steps": 60, **more})


def test_without_noise_a_run_takes_what_the_plan_predicts():
    figures = simulate(Scenario(cluster=THREE, wanted=wanted(), wires=STEADY))
    predicted = make_plan(THREE, 128).prediction.step_s
    assert figures.seconds / 60 == pytest.approx(predicted, rel=0.01)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    noisy = Scenario(cluster=cluster_of(0.002, 0.004, spread=0.1), wanted=wanted())
    first, again, other = (simulate(replace(noisy, seed=seed)).steps_s for seed in (1, 1, 2))
    assert first == again != other


def test_noise_costs_the_wait_for_whoever_is_late():
    noisy = cluster_of(*[0.004] * 8, spread=0.1)
    figures = simulate(Scenario(cluster=noisy, wanted=wanted(num_steps=300), wires=STEADY))
    assert figures.seconds / 300 == pytest.approx(make_plan(noisy, 128).prediction.step_s, rel=0.03)


def test_a_machine_that_slows_down_loses_work_and_gets_it_back():
    slow = Scenario(
        cluster=THREE, wanted=wanted(num_steps=120), wires=STEADY, slow_downs=(SlowDown("m0000", 0.33, 30, 70),)
    )
    figures = simulate(slow)
    assert figures.num_plan_changes >= 2
    usual, worst, after = figures.steps_s[20], max(figures.steps_s[30:40]), figures.steps_s[-1]
    assert worst > 1.8 * usual
    assert figures.steps_s[60] < 0.8 * worst
    assert after == pytest.approx(usual, rel=0.05)


def test_a_lost_machine_costs_a_second_and_comes_back():
    figures = simulate(Scenario(cluster=THREE, wanted=wanted(), wires=STEADY, losses=(MachineLoss("m0001", 20, 3.0),)))
    assert figures.num_lost == 1
    assert 1.0 < figures.stall_s < 3.0
    assert figures.steps_s[-1] == pytest.approx(figures.steps_s[5], rel=0.05)


def test_a_run_whose_machines_are_all_lost_waits_for_the_first_that_comes_back():
    losses = tuple(MachineLoss(name, 20, 30.0) for name in THREE.machines)
    figures = simulate(Scenario(cluster=THREE, wanted=wanted(), wires=STEADY, losses=losses))
    assert figures.num_steps == 60
    assert figures.seconds > 30


def test_a_machine_whose_link_does_not_pay_is_benched():
    links = {**THREE.links, "m0002": LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=2.5e5)}
    slow = replace(THREE, links=links)
    kept = simulate(Scenario(cluster=slow, wanted=wanted(keep=("m0002",)), wires=STEADY))
    free = simulate(Scenario(cluster=slow, wanted=wanted(), wires=STEADY))
    assert free.steps_s[-1] < 0.5 * kept.steps_s[-1]


@pytest.mark.parametrize("exchange", ["exact", "fp16", "int8", "int4", "auto"])
def test_a_code_is_as_fast_as_its_plan_says(exchange):
    slow = cluster_of(0.002, 0.004, 0.008, rate=2.5e6)
    figures = simulate(Scenario(cluster=slow, wanted=wanted(exchange=exchange), wires=STEADY))
    assert figures.num_steps == 60
    exact = simulate(Scenario(cluster=slow, wanted=wanted(), wires=STEADY))
    assert figures.seconds <= exact.seconds * 1.01


def test_rounds_exchange_rarely():
    slow = cluster_of(0.002, 0.004, 0.008, rate=2.5e6)
    rounds = wanted(exchange="rounds", num_steps=400, warm_up_steps=20, round_steps=16, keep=slow.machines)
    figures = simulate(Scenario(cluster=slow, wanted=rounds, wires=STEADY))
    exact = simulate(Scenario(cluster=slow, wanted=wanted(num_steps=400, keep=slow.machines), wires=STEADY))
    assert figures.exchange_s < 0.4 * exact.exchange_s
    assert figures.samples_per_s > exact.samples_per_s


def test_rounds_of_machines_whose_steps_vary_take_what_is_predicted():
    noisy = replace(cluster_of(*[0.002] * 8, rate=2.5e7, spread=0.2), overhead_s=0.1)
    terms = RunTerms(batch=128, num_steps=800, warm_up_steps=0, round_steps=16, keep=noisy.machines)
    predicted = next(mode for mode in predict_modes(noisy, terms) if mode.mode == "rounds")
    rounds = wanted(exchange="rounds", num_steps=800, warm_up_steps=0, round_steps=16, keep=noisy.machines)
    figures = simulate(Scenario(cluster=noisy, wanted=rounds, wires=STEADY))
    assert figures.samples_per_s == pytest.approx(predicted.samples_per_s, rel=0.04)


def test_islands_exchange_inside_in_every_step_and_rarely_between():
    far = LinkProfile(latency_s=1e-3, bandwidth_bytes_per_s=2.5e6)
    near = LinkProfile(latency_s=1e-4, bandwidth_bytes_per_s=1.25e8)
    four = cluster_of(0.002, 0.002, 0.002, 0.002)
    names = four.machines
    pairs = {
        frozenset((one, other)): near if (a < 2) == (b < 2) else far
        for a, one in enumerate(names)
        for b, other in enumerate(names)
        if a < b
    }
    kept = {"num_steps": 400, "keep": names}
    islands = wanted(exchange="islands", warm_up_steps=16, round_steps=16, **kept)
    figures = simulate(Scenario(cluster=replace(four, pairs=pairs), wanted=islands, wires=STEADY))
    exact = simulate(Scenario(cluster=replace(four, pairs=pairs), wanted=wanted(**kept), wires=STEADY))
    assert figures.samples_per_s > 1.3 * exact.samples_per_s


def kept_exchange_s(cluster, **wires):
    run = Scenario(
        cluster=cluster, wanted=wanted(keep=cluster.machines, num_steps=20), wires=Wires(variation=0.0, **wires)
    )
    return simulate(run).exchange_s / 20


def test_a_shared_switch_an_uplink_and_lost_packets_slow_the_exchange():
    six = cluster_of(*[0.004] * 6)
    usual = kept_exchange_s(six)
    assert kept_exchange_s(six, shared_bytes_per_s=1.25e8) == pytest.approx(6 * usual, rel=0.2)
    away = dict.fromkeys(six.machines[3:], "far")
    assert kept_exchange_s(six, sites=away, uplink_bytes_per_s=1.25e7) == pytest.approx(10 * usual, rel=0.3)
    assert kept_exchange_s(six, packet_loss=0.02) > 1.2 * usual


def test_a_tree_has_fewer_hops_than_a_ring_and_sends_more():
    far_apart = cluster_of(*[0.004] * 64, latency_s=5e-3, num_bytes=40_000)
    assert kept_exchange_s(far_apart, topology="tree") < 0.3 * kept_exchange_s(far_apart)
    wide = cluster_of(*[0.004] * 8, num_bytes=40_000_000)
    assert kept_exchange_s(wide, topology="tree") > 1.5 * kept_exchange_s(wide)


def test_the_host_serves_the_others_with_its_own_processor():
    hosting = Scenario(cluster=THREE, wanted=wanted(), wires=STEADY, host="m0000", host_load_per_machine=0.1)
    assert simulate(hosting).seconds > 1.1 * simulate(replace(hosting, host="")).seconds


def test_pauses_and_losses_come_at_random():
    calm = Scenario(cluster=THREE, wanted=wanted(num_steps=200), wires=STEADY)
    busy = simulate(replace(calm, chances=Chances(pauses_per_h=600, losses_per_h=300, away_s=5)))
    assert busy.num_lost > 0
    assert busy.seconds > simulate(calm).seconds


def test_a_cold_start_learns_the_shares():
    figures = simulate(Scenario(cluster=THREE, wanted=wanted(is_cold=True), wires=STEADY))
    assert figures.steps_s[0] > 1.5 * figures.steps_s[-1]


def test_a_recorded_run_is_read_like_a_real_one_and_says_that_it_is_simulated(tmp_path):
    scenario = Scenario(
        cluster=cluster_of(0.002, 0.004, spread=0.05), wanted=wanted(), losses=(MachineLoss("m0001", 20, 1.0),)
    )
    _, figures = record(scenario, tmp_path, "paper", {"model": "simple_cnn"})
    view = read_run(RunFolder(tmp_path / "paper"))
    story = tell(view)
    assert story.status == "finished, simulated"
    assert view.state.step == 60
    assert view.merge.samples_per_s == pytest.approx(figures.samples_per_s, rel=0.02)
    assert story.account is not None
    assert story.account.efficiency == pytest.approx(figures.efficiency, rel=0.25)
    assert any("gone" in line.text for line in story.faults)
    assert any("simulated" in line.text for line in story.notices)
    _, lines = table(compare([view, view]))
    assert lines[0][1] == "finished, simulated"


def test_a_machine_that_is_to_be_lost_in_a_round_is_lost_however_rounds_change(tmp_path):
    """The next machine's loss lies in a round that is longer than it was before the first machine was lost."""
    cluster = cluster_of(0.002, 0.004, 0.008, rate=1.25e5)
    losses = [MachineLoss(f"m000{which}", step, None) for which, step in ((1, 20), (2, 27))]
    run = wanted(num_steps=120, exchange="rounds", warm_up_steps=4, round_steps=8)
    assert simulate(Scenario(cluster=cluster, wanted=run, losses=losses)).num_lost == 2


def test_many_machines_are_written_by_kind(tmp_path):
    many = cluster_of(*[0.002, 0.004] * 50, spread=0.05)
    kinds = {name: "fast" if index % 2 == 0 else "slow" for index, name in enumerate(many.machines)}
    record(Scenario(cluster=many, wanted=wanted(batch=6400, num_steps=30), kinds=kinds), tmp_path, "many", {})
    files = sorted(path.stem for path in (tmp_path / "many" / "events").iterdir())
    assert files == ["50x-fast-0", "50x-slow-0"]
    view = read_run(RunFolder(tmp_path / "many"))
    account = view.account()
    assert account is not None
    assert account.num_steps == 30
    steps = [json.loads(line)["event"] for line in (tmp_path / "many/events/50x-fast-0.jsonl").read_text().splitlines()]
    last = [event for event in steps if event["type"] == "step_committed"][-1]
    assert last["own_samples"] == pytest.approx(6400 * 2 / 3, rel=0.05)


def test_a_thousand_machines_are_simulated_in_seconds():
    kinds = [0.002, 0.004, 0.01]
    many = cluster_of(*(kinds[index % 3] for index in range(1000)), spread=0.05)
    began = time.process_time()
    simulate(Scenario(cluster=many, wanted=wanted(batch=64_000, num_steps=50)))
    assert time.process_time() - began < 20


def test_the_files_of_a_run_grow_with_its_machines_and_not_with_their_square(tmp_path):
    """Each plan lists all workers, so not all of them write it; everything that is shown is known all the same."""

    def recorded(num_machines):
        cluster = cluster_of(*[0.001 * (1 + index % 4) for index in range(num_machines)])
        folder = RunFolder(tmp_path / str(num_machines))
        folder.path.mkdir()
        folder.settings_file.write_text("simulated: true\n")
        writer = RunWriter(folder, cluster, rows_of(cluster, {}, most=num_machines), time.time())
        began = TrainingBegan(num_samples=1, global_batch=1, steps_per_epoch=30, num_epochs=1, last_step=30)
        writer.begin("run", began)
        run = wanted(batch=16 * num_machines, num_steps=30, keep=cluster.machines)
        figures = Simulation(Scenario(cluster=cluster, wanted=run), writer).run()
        writer.end(figures.num_steps, figures.seconds, "")
        return folder, sum(file.stat().st_size for file in folder.event_files())

    (_, few_bytes), (folder, many_bytes) = recorded(60), recorded(240)
    assert many_bytes < 5 * few_bytes
    view = read_run(folder)
    assert len(view.state.shares) == 240
    assert sum(view.state.shares.values()) == 16 * 240
    assert view.account().predicted_samples_per_s > 0
    write_summaries(folder)
    told = [json.loads(file.read_text())["shares"] for file in folder.path.glob("logs/rank_*_metrics.json")]
    assert told
    assert all(shares == view.state.shares for shares in told)


def test_what_users_write_is_read_or_refused_with_an_example():
    assert read_slow_downs(["rosa=0.33@60-120"]) == (SlowDown("rosa", 0.33, 60, 120),)
    assert read_losses(["lily@180", "fern@5+30s"]) == (MachineLoss("lily", 180, None), MachineLoss("fern", 5, 30.0))
    assert read_sites(["far=fern,moss"]) == {"fern": "far", "moss": "far"}
    for read, wrong in ((read_slow_downs, "rosa"), (read_losses, "lily"), (read_sites, "far")):
        with pytest.raises(SettingsError) as error:
            read([wrong])
        assert "write it as" in error.value.fix


def test_unknown_machines_are_refused():
    with pytest.raises(SettingsError, match="no machine 'rosa'"):
        Scenario(cluster=THREE, wanted=wanted(), losses=(MachineLoss("rosa", 3),))


@pytest.mark.parametrize("num_machines", [2, 8])
def test_the_exchange_that_workers_measure_is_the_one_that_steps_waited_for(num_machines):
    """Beside the lateness of whoever happens to be last, which a prediction counts by itself."""
    noisy = cluster_of(*[0.004] * num_machines, spread=0.15)
    run = wanted(batch=32 * num_machines, num_steps=60, keep=noisy.machines)
    runs = [Simulation(Scenario(cluster=noisy, wanted=run, seed=seed)) for seed in range(4)]
    exchange_s = statistics.fmean(one.run().exchange_s / 60 for one in runs)
    measured_s = statistics.fmean(one.largest_ring.exposed_s for one in runs if one.largest_ring)
    assert measured_s == pytest.approx(exchange_s, rel=0.2)


def test_what_happens_in_the_middle_of_a_round_happens():
    slow = cluster_of(0.002, 0.004, 0.008, rate=2.5e6)
    rounds = wanted(exchange="rounds", num_steps=400, warm_up_steps=16, round_steps=32, keep=slow.machines)
    calm = Scenario(cluster=slow, wanted=rounds, wires=STEADY)
    usual = simulate(calm)
    lost = simulate(replace(calm, losses=(MachineLoss("m0001", 101),)))
    slowed = simulate(replace(calm, slow_downs=(SlowDown("m0001", 0.25, 101, 108),)))
    assert lost.num_lost == 1
    assert slowed.seconds == pytest.approx(usual.seconds + 8 * 3 * slowed.work_s / 400, rel=0.05)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"losses": (MachineLoss("m0001", 61),)}, "cannot be lost at step 61 of a run of 60"),
        ({"losses": (MachineLoss("m0001", 0),)}, "cannot be lost at step 0"),
        ({"losses": (MachineLoss("m0001", 9), MachineLoss("m0001", 12, 3.0))}, "does not come back"),
        ({"losses": tuple(MachineLoss(name, 9) for name in THREE.machines)}, "none comes back"),
        ({"slow_downs": (SlowDown("m0001", 0.5, 30, 20),)}, "cannot be slow from step 30 to step 20"),
        ({"slow_downs": (SlowDown("m0001", 0.5, 70, 80),)}, "of a run of 60 steps"),
        ({"wires": Wires(uplink_bytes_per_s=1e6)}, "stand at one site"),
        ({"wires": Wires(uplink_bytes_per_s=1e6, sites=dict.fromkeys(THREE.machines, "far"))}, "stand at one site"),
        ({"wires": Wires(sites={"m0001": "far"})}, "without an uplink"),
        ({"wires": Wires(topology="tree"), "wanted": wanted(exchange="int4")}, "never along a tree"),
        ({"wanted": wanted(keep=("rosa",))}, "no machine 'rosa'"),
    ],
)
def test_what_would_have_no_effect_is_refused_with_a_sentence(more, says):
    with pytest.raises(SettingsError, match=says) as error:
        Scenario(**{"cluster": THREE, "wanted": wanted(), **more})
    assert error.value.fix


def test_a_machine_stands_at_one_site():
    with pytest.raises(SettingsError, match="fern cannot stand at far and at near"):
        read_sites(["far=fern,moss", "near=fern"])
    with pytest.raises(SettingsError, match="is not a site"):
        read_sites(["far=,"])


@pytest.mark.parametrize("away_s", [3.0, None])
def test_a_benched_machine_takes_over_when_the_only_one_that_trains_is_lost(away_s):
    scenario = Scenario(
        cluster=cluster_of(0.0001, 0.0002, 0.0003, rate=2.5e5),
        wanted=wanted(num_steps=80, batch=64),
        losses=(MachineLoss("m0000", 60, away_s),),
        wires=STEADY,
    )
    simulation = Simulation(scenario)
    figures = simulation.run()
    assert figures.num_steps == 80
    assert figures.num_lost == 1
    if away_s is None:
        assert figures.steps_s[-1] == pytest.approx(0.01 + 64 * 0.0002, rel=0.1)


def test_with_a_cpu_quota_a_machine_alone_is_as_slow_as_its_plan_says():
    (worker,) = cluster_of(0.001).workers
    quota = replace(worker, stretch=2.5, least_factor=2.5)
    cluster = Cluster(workers=(quota,), links={}, exchange=exchange_of(1_600_000))
    figures = simulate(Scenario(cluster=cluster, wanted=wanted(), wires=STEADY))
    assert figures.seconds / 60 == pytest.approx(make_plan(cluster, 128).prediction.step_s, rel=0.02)
