"""Clusters made from profiles: what a ring has measured holds for other machines, too, by their number and links."""

import numpy as np
import pytest

from potluck.measuring.imagined import with_wishes
from potluck.measuring.profile_store import StoredProfile
from potluck.measuring.sources import make_cluster, read_links
from potluck.planning.costs import ComputeProfile, LinkProfile
from potluck.planning.measured_exchange import RingMeasurement

NUM_BYTES = 10_000_000
RING = RingMeasurement(machines=("fern", "lily", "rosa"), work_s=0.1, exposed_s=0.4)


def profiled(**rates):
    """Machines that made a run together, and their links in bytes/s if these were measured."""
    return [
        StoredProfile(
            machine=name,
            device="cpu",
            model="simple_cnn-base",
            precision="no",
            compute=ComputeProfile(fixed_s=0.0, per_sample_s=0.002),
            gradient_bytes=NUM_BYTES,
            link=None if rate is None else LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=rate),
            ring=RING,
            specification="8-core CPU",
        )
        for name, rate in rates.items()
    ]


def exchange_s(cluster, work_s=0.1):
    """Seconds that a step of all machines waits for gradients."""
    return cluster.exchange.exposed_s(cluster.wire_s(np.ones(len(cluster.machines), dtype=bool)), work_s)


def asked(measured, *, add=(), without=(), links=()):
    found = with_wishes(measured, add, without)
    named = read_links(links, [one.machine for one in found])
    return make_cluster(found, named, measured=measured)


def test_without_a_machine_the_measured_exchange_is_scaled_to_the_links_that_remain():
    measured = profiled(fern=1e8, lily=5e7, rosa=1e8)  # by the formula 0.267 s, measured 0.4 s
    assert exchange_s(make_cluster(measured)) == pytest.approx(0.4)
    assert exchange_s(asked(measured, without=["lily"])) == pytest.approx(1.5 * NUM_BYTES / 1e8)
    assert exchange_s(asked(measured, without=["fern"])) == pytest.approx(1.5 * NUM_BYTES / 5e7)


def test_without_a_machine_an_exchange_over_unknown_links_is_scaled_to_the_number_of_machines():
    measured = profiled(fern=None, lily=None, rosa=None)
    assert exchange_s(asked(measured, without=["lily"])) == pytest.approx(0.4 * (2 * 1 / 2) / (2 * 2 / 3))
    assert exchange_s(asked(measured, without=["lily", "fern"])) == 0


def test_with_another_machine_the_measured_exchange_is_scaled_to_more_machines_and_the_new_link():
    measured = profiled(fern=1e8, lily=5e7, rosa=1e8)
    cable, slow = (asked(measured, add=[f"new=8-core CPU,{rate}"]) for rate in ("1gbit", "80mbit"))
    assert exchange_s(cable) == pytest.approx(0.4 * (2 * 3 / 4) / (2 * 2 / 3))
    assert exchange_s(slow) == pytest.approx(1.5 * 1.5 * NUM_BYTES / 1e7)


def test_the_link_of_a_new_machine_does_not_make_the_others_exchange_a_constant():
    measured = profiled(fern=None, lily=None, rosa=None)
    cluster = asked(measured, add=["new=8-core CPU,1gbit"])
    assert cluster.overhead_s == 0
    assert exchange_s(cluster) == pytest.approx(0.4 * (2 * 3 / 4) / (2 * 2 / 3))


def test_a_link_by_hand_counts_instead_of_the_ring_only_if_it_is_of_a_machine_in_it():
    measured = profiled(fern=1e8, lily=5e7, rosa=1e8)
    added = asked(measured, add=["new=8-core CPU"], links=["new=1gbit"])
    assert exchange_s(added) == pytest.approx(0.4 * (2 * 3 / 4) / (2 * 2 / 3))
    assert exchange_s(asked(measured, links=["lily=400mbit"])) == pytest.approx(2 * 2 / 3 * NUM_BYTES / 5e7)


def test_a_plan_from_trials_counts_what_a_step_takes_beside_its_work():
    """What a run measured of any model, else what it usually is; costs of runs contain it, and one machine has none."""
    of_runs = [one.model_copy(update={"ring": None}) for one in profiled(fern=1e8, rosa=1e8)]
    trials = [one.model_copy(update={"trial": {8: 0.016}}) for one in of_runs]
    known = [
        one.model_copy(update={"overhead_s": beside_s}) for one, beside_s in zip(trials, (0.02, 0.01), strict=True)
    ]
    assert make_cluster(of_runs).overhead_s == 0
    assert make_cluster(trials).overhead_s == pytest.approx(0.003)
    assert make_cluster(known).overhead_s == pytest.approx(0.02)
    assert make_cluster(known[:1]).overhead_s == 0
