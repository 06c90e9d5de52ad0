"""A host acts only while enough machines confirm it, and a machine that confirmed it keeps its vote for a while."""

import itertools

import pytest

from potluck.engine.group.lighthouse import _HEARTBEAT_TIMEOUT_MS
from potluck.gates.lease import FRESH_S, LEASE_S, NEW_S, TENDED_S, VOTE_S, HostLease, may_decide
from potluck.gates.messages import Electorate, Promise, Settings

NAMES = ("rosa", "lily", "fern")
ALL = (Electorate(voters=NAMES, tie_breaker="rosa"),)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Link:
    def __init__(self, clock):
        self.clock = clock
        self.confirmed = {}
        self.reached = float("-inf")

    def reached_at(self):
        return self.reached

    def confirm(self, term):
        self.confirmed[term] = self.clock()

    def confirmed_at(self, term):
        return self.confirmed.get(term, float("-inf"))


def lease(machine="rosa", electorates=ALL, term=1):
    clock = Clock()
    settings = Settings(
        machine=machine, host="rosa", block="127.77.16.0", members=(), term=term, electorates=electorates
    )
    links = {name: Link(clock) for name in NAMES if name != machine}
    return HostLease(lambda: settings, links, clock), links, clock


@pytest.mark.parametrize("number", range(1, 8))
def test_two_sides_never_both_decide(number):
    names = [f"m{one}" for one in range(number)]
    electorate = Electorate(voters=tuple(names), tie_breaker=names[-1])
    for size in range(number + 1):
        for side in itertools.combinations(names, size):
            other = set(names) - set(side)
            assert not (may_decide(electorate, side) and may_decide(electorate, other))
            assert may_decide(electorate, side) or may_decide(electorate, other)


def test_a_host_has_its_lease_by_a_majority_that_confirmed_it_a_moment_ago():
    host, links, clock = lease()
    assert not host.is_valid
    links["lily"].confirm(1)
    assert host.is_valid
    clock.now += LEASE_S + 0.01
    assert not host.is_valid
    links["fern"].confirm(2)  # another term
    assert not host.is_valid


def test_both_electorates_have_to_agree_while_one_replaces_the_other():
    old = Electorate(voters=NAMES, tie_breaker="rosa")
    host, links, _ = lease(electorates=(old, Electorate(voters=("rosa",), tie_breaker="rosa")))
    assert not host.is_valid
    links["fern"].confirm(1)
    assert host.is_valid


def test_a_host_without_electorates_needs_nobody():
    host, _, _ = lease(electorates=())
    assert host.is_valid


def test_a_machine_that_hears_its_host_promises_nothing_until_later_than_the_lease_and_a_lone_workers_lease():
    voter, _, clock = lease("lily")
    clock.now += 10
    voter.heard_ping(1, binds=True)
    clock.now += VOTE_S - 0.01
    assert not voter.promise(Promise(term=2, candidate="fern")).granted
    clock.now += 0.02
    assert voter.promise(Promise(term=2, candidate="fern")).granted
    assert voter.promised == 2
    assert not voter.promise(Promise(term=2, candidate="lily")).granted, "two votes in one term"
    # A worker that trains alone asks for a quorum every two seconds: see engine/group/lease.py.
    from potluck.engine.group.lease import LEASE_S as LONE_S

    assert VOTE_S > LEASE_S + LONE_S


def test_a_ping_of_an_old_term_binds_nobody_and_one_that_is_confirmed_binds_whoever_sent_it():
    voter, _, clock = lease("lily", term=3)
    clock.now += VOTE_S + 1
    voter.heard_ping(2, binds=True)
    assert voter.promise(Promise(term=4, candidate="fern")).granted
    voter.heard_ping(4, binds=True)  # fern has won, and lily has not heard of it yet
    assert not voter.promise(Promise(term=5, candidate="jade")).granted


def test_a_gate_that_has_just_started_may_have_confirmed_the_host_a_moment_ago():
    voter, _, clock = lease("lily")
    clock.now += VOTE_S - 0.1
    assert not voter.promise(Promise(term=2, candidate="fern")).granted


def test_a_host_gives_its_place_away_only_when_it_wants_to():
    host, links, clock = lease()
    links["fern"].confirm(1)
    clock.now += VOTE_S - 0.1
    assert not host.is_valid
    assert not host.promise(Promise(term=2, candidate="lily")).granted
    assert host.promise(Promise(term=2, candidate="lily", is_released=True)).granted
    assert not host.is_valid, "it has given its vote for a newer term"


def test_a_host_that_nobody_confirms_for_long_votes_as_others_do():
    host, links, clock = lease()
    links["fern"].confirm(1)
    clock.now += VOTE_S + 0.1
    assert host.promise(Promise(term=2, candidate="lily")).granted


def test_a_host_may_ask_for_a_newer_term_of_its_own():
    voter, _, clock = lease("lily")
    clock.now += 1
    voter.heard_ping(1, binds=True)
    assert voter.promise(Promise(term=5, candidate="rosa")).granted


def test_whoever_gets_a_vote_has_time_to_begin_before_the_voter_looks_for_another_host():
    voter, _, clock = lease("lily")
    clock.now += VOTE_S + 0.1
    assert voter.promise(Promise(term=2, candidate="fern")).granted
    clock.now += VOTE_S - 0.1
    assert not voter.promise(Promise(term=3, candidate="lily")).granted
    assert not voter.promise(Promise(term=3, candidate="rosa")).granted
    assert voter.promise(Promise(term=3, candidate="fern")).granted, "fern may ask again, if it has not won"
    clock.now += VOTE_S + 0.1
    assert voter.promise(Promise(term=4, candidate="lily")).granted
    assert voter.touch().host_heard_s > VOTE_S, "a machine that votes for itself does not wait for itself"


def test_a_gate_acts_for_nobody_when_the_hosts_part_of_its_machine_is_gone():
    host, links, clock = lease()
    links["lily"].reached = float("inf")
    links["fern"].confirm(1)
    assert host.is_valid, "a host that has just won begins"
    clock.now += NEW_S + 0.1
    links["fern"].confirm(1)
    assert not host.is_valid
    assert not host.binds(), "the others may elect another one"
    host.touch()
    assert not host.is_valid, "the agent of this machine has asked"
    assert host.touch(by_host=True).has_lease
    assert host.binds()
    clock.now += TENDED_S - 0.1
    links["fern"].confirm(1)
    assert host.is_valid
    clock.now += 0.2
    assert not host.is_valid


def test_a_trial_asks_for_a_promise_and_gives_none():
    voter, _, clock = lease("lily")
    assert not voter.promise(Promise(term=2, candidate="fern", is_trial=True)).granted
    clock.now += VOTE_S + 0.1
    for _ in range(2):
        assert voter.promise(Promise(term=2, candidate="fern", is_trial=True)).granted
    assert voter.promised == 1
    assert voter.promise(Promise(term=2, candidate="jade")).granted, "it has given its vote to nobody"


def test_answers_wait_before_a_lighthouse_could_have_given_up_the_workers_of_machines_that_are_cut_off():
    assert FRESH_S < _HEARTBEAT_TIMEOUT_MS / 1000 < LEASE_S
    host, links, clock = lease()
    for link in links.values():
        link.confirm(1)
    clock.now += FRESH_S - 0.1
    assert host.is_fresh
    clock.now += 0.2
    assert host.is_valid
    assert not host.is_fresh
    links["fern"].confirm(1)
    assert host.is_fresh, "fern and rosa are more than half"
    alone, _, _ = lease(electorates=())
    assert alone.is_fresh
