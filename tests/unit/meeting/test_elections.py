"""Seeded schedules of losses, freezes and cut links, in virtual time: never two hosts that may act, nor two in a term.

The machines are the real HostLease and Candidacy; only clock, links and disks are made up.
"""

import random

import pytest

from potluck.gates.lease import PING_S, HostLease
from potluck.gates.messages import Electorate, Promise, Settings
from potluck.meeting.succession.ballot import Ballot
from potluck.meeting.succession.candidacy import Candidacy
from potluck.meeting.succession.finding import HostClaims
from potluck.meeting.succession.notes import HostIs, Release, read_note, write_note
from potluck.meeting.wire import GateOrders, Succession, Voters

NAMES = ["rosa", "lily", "fern", "iris", "jade"]
TICK_S = 0.1


class Disk:
    """A ballot file that is always written."""

    def __init__(self, orders):
        self.ballot = Ballot(orders=orders)

    def note(self, **changes):
        self.ballot = self.ballot.model_copy(update=changes)


class FakeLink:
    def __init__(self):
        self.confirmed = (0, float("-inf"))
        self.reached = float("-inf")

    def reached_at(self):
        return self.reached

    def confirmed_at(self, term):
        return self.confirmed[1] if self.confirmed[0] == term else float("-inf")


class Machine:
    """One machine: its gate's lease, its votes, and whether it is the host."""

    def __init__(self, world, name, orders, chance):
        self.world, self.name = world, name
        self.disk = Disk(orders)
        self.links = {other: FakeLink() for other in NAMES if other != name}
        self.lease = HostLease(self.settings, self.links, lambda: world.now)
        self.candidacy = Candidacy(name, self.disk, self, clock=lambda: world.now, chance=chance.random)
        self.claims = HostClaims()
        self.frozen_until = 0.0
        self.stuck_until = 0.0  # the agent or the host's part does nothing, while the gate goes on
        self.pinged_at = 0.0

    def settings(self):
        orders = self.disk.ballot.orders
        return Settings(
            machine=self.name,
            host=orders.host,
            block=orders.block,
            members=(),
            term=orders.succession.term,
            promised=self.disk.ballot.promised,
            electorates=tuple(
                Electorate(voters=tuple(one.machines), tie_breaker=one.tie_breaker)
                for one in orders.succession.electorates
            ),
        )

    @property
    def is_host(self):
        return self.disk.ballot.host == self.name

    @property
    def may_act(self):
        return self.is_host and self.lease.is_valid

    # The gate, as Candidacy sees it

    def touch(self):
        return self.lease.touch()

    def promise(self, term, candidate, *, is_released=False, is_trial=False):
        asked = Promise(term=term, candidate=candidate, is_released=is_released, is_trial=is_trial)
        return self.lease.promise(asked)

    def say(self, machine, text):
        return self.world.send(self.name, machine, text)

    def follow(self, host, term):
        orders = self.disk.ballot.orders
        succession = orders.succession.model_copy(update={"term": term})
        self.disk.note(orders=orders.model_copy(update={"host": host, "succession": succession}))

    def hand_over(self, to):
        note = write_note(self.candidacy.give_away(to))
        for voter in self.disk.ballot.orders.succession.voters():
            if voter != self.name:
                self.say(voter, note)

    def hear(self, sender, text):
        note = read_note(text)
        if isinstance(note, HostIs):
            if (found := self.claims.hear(sender, note, self.disk.ballot.orders)) is not None:
                self.follow(found.host, found.term)
        else:
            self.candidacy.hear(sender, note, 1)

    def turn(self):
        if self.world.now < self.frozen_until:
            return
        if self.world.now - self.pinged_at >= PING_S and self.is_host:
            self.pinged_at = self.world.now
            for other in NAMES:
                if other != self.name:
                    self.world.ping(self, self.world.machines[other])
        if self.world.now < self.stuck_until:
            return
        if self.is_host:
            self.lease.touch(by_host=True)
        won = self.candidacy.look(1)
        if won is not None:
            self.world.winners.append((won, self.name))
            self.follow(self.name, won)
        if self.may_act:
            for other in NAMES:
                if other != self.name:
                    self.say(other, write_note(HostIs(term=self.disk.ballot.term)))


class World:
    def __init__(self, seed, num_machines):
        self.now = 1000.0
        self.chance = random.Random(seed)
        self.names = NAMES[:num_machines]
        succession = Succession(
            term=1, number=1, electorates=[Voters(machines=self.names, tie_breaker="rosa")], successors=self.names[1:]
        )
        orders = GateOrders(block="127.77.16.0", host="rosa", members=[], runs={}, succession=succession)
        self.machines = {name: Machine(self, name, orders, self.chance) for name in NAMES}
        self.cut = {}
        self.letters = []
        self.winners = []

    def is_cut(self, one, other):
        """Whether what `one` sends does not reach `other`: cuts may be one-way."""
        return self.cut.get((one, other), 0.0) > self.now or {one, other} - set(self.names)

    def is_still(self, name):
        return self.machines[name].frozen_until > self.now

    def is_stuck(self, name):
        return self.is_still(name) or self.machines[name].stuck_until > self.now

    def send(self, sender, to, text):
        if self.is_cut(sender, to):
            return False
        self.letters.append((self.now + self.chance.uniform(0.0, 0.6), sender, to, text))
        return True

    def ping(self, host, other):
        if self.is_cut(host.name, other.name) or self.is_still(other.name):
            return
        term, binds = host.lease.term, host.lease.binds()
        other.lease.heard_ping(term, binds=binds)
        if self.is_cut(other.name, host.name):
            return
        host.lease.heard_pong(other.lease.promised)
        host.links[other.name].reached = self.now
        if binds and other.lease.promised == term:
            host.links[other.name].confirmed = (term, self.now)

    def strike(self):
        """Something bad, for a while."""
        kind, length = (
            self.chance.choice(("freeze", "stuck", "cut", "one-way", "island")),
            self.chance.uniform(1.0, 15.0),
        )
        one, other = self.chance.sample(self.names, 2)
        if kind == "freeze":
            self.machines[one].frozen_until = self.now + length
        elif kind == "stuck":
            self.machines[one].stuck_until = self.now + length
        elif kind == "one-way":
            self.cut[one, other] = self.now + length
        elif kind == "cut":
            self.cut[one, other] = self.cut[other, one] = self.now + length
        else:
            side = set(self.chance.sample(self.names, len(self.names) // 2))
            for first in side:
                for second in set(self.names) - side:
                    self.cut[first, second] = self.cut[second, first] = self.now + length

    def step(self):
        self.now += TICK_S
        due = [letter for letter in self.letters if letter[0] <= self.now and not self.is_stuck(letter[2])]
        self.letters = [letter for letter in self.letters if letter not in due]
        for _, sender, to, text in due:
            self.machines[to].hear(sender, text)
        for name in self.names:
            self.machines[name].turn()


def test_a_host_whose_pings_arrive_but_who_hears_nothing_is_replaced():
    world = World(1, 3)
    for name in ("lily", "fern"):
        world.cut[name, "rosa"] = float("inf")
    for _ in range(200):
        world.step()
    assert world.winners
    assert sum(world.machines[name].may_act for name in world.names) == 1


def run(world, seconds):
    until = world.now + seconds
    while world.now < until:
        world.step()


def confirming(world):
    return set(world.machines["rosa"].lease.confirmed_by())


def test_a_successor_that_was_cut_off_confirms_its_host_again():
    world = World(1, 3)
    run(world, 2.0)
    for other in ("rosa", "fern"):
        world.cut["lily", other] = world.cut[other, "lily"] = world.now + 30.0
    run(world, 29.0)
    assert confirming(world) == {"rosa", "fern"}
    assert world.machines["lily"].lease.promised == 1, "nobody would have voted for it: it has no term of its own"
    run(world, 5.0)
    assert confirming(world) == {"rosa", "lily", "fern"}
    assert world.machines["rosa"].disk.ballot.term == 1
    assert not world.winners


def test_a_host_takes_a_newer_term_for_a_machine_that_has_promised_one_that_nobody_has_won():
    world = World(1, 3)
    world.machines["lily"].disk.note(promised=4)  # as after an election in which too few votes arrived
    run(world, 2.0)
    assert confirming(world) == {"rosa", "fern"}
    run(world, 10.0)
    assert confirming(world) == {"rosa", "lily", "fern"}
    assert world.winners == [(5, "rosa")]
    assert world.machines["rosa"].may_act


def test_a_host_whose_process_is_stuck_behind_a_gate_that_goes_on_is_replaced():
    world = World(1, 3)
    run(world, 15.0)
    world.machines["rosa"].stuck_until = float("inf")
    run(world, 3.0)
    assert world.machines["rosa"].may_act
    run(world, 1.5)
    assert not world.machines["rosa"].may_act
    run(world, 10.0)
    assert [name for name in world.names if world.machines[name].may_act] == ["lily"]


@pytest.mark.parametrize(("num_machines", "is_heard"), [(2, True), (3, True), (3, False), (5, False)])
def test_a_handover_takes_a_moment_and_there_are_never_two_hosts_in_it(num_machines, is_heard):
    for seed in range(20):
        world = World(seed, num_machines)
        run(world, 2.0)
        if not is_heard:  # rosa is not asked for its vote
            world.cut["lily", "rosa"] = float("inf")
        world.machines["rosa"].hand_over("lily")
        assert not world.machines["rosa"].may_act, "others may elect lily while their confirmations still count"
        for _ in range(60):
            world.step()
            acting = [name for name in world.names if world.machines[name].may_act]
            assert len(acting) <= 1, (seed, world.now, acting)
        assert acting == ["lily"], seed


def test_the_word_of_a_host_does_not_count_any_more_once_a_vote_went_to_another():
    world = World(1, 3)
    run(world, 2.0)
    fern = world.machines["fern"]
    fern.candidacy.hear("rosa", Release(term=1, to="lily"), 1)
    assert fern.candidacy._promise(5, "rosa", is_trial=False), "lily was too slow, and rosa asks for a newer term"
    assert not fern.candidacy._promise(6, "lily", is_trial=False)


def test_who_has_left_votes_for_nobody_until_it_has_orders_again():
    """Else two that left, and come back while the host is cut off, could elect one of them by what they know."""
    world = World(1, 3)
    orders = world.machines["lily"].disk.ballot.orders
    for name in ("lily", "fern"):
        world.machines[name].candidacy.abstain()
    for other in ("lily", "fern"):
        world.cut["rosa", other] = world.cut[other, "rosa"] = world.now + 30.0
    run(world, 20.0)
    assert not world.winners
    for name in ("lily", "fern"):
        assert world.machines[name].disk.ballot.term == 1
        world.machines[name].candidacy.follow(orders)
    run(world, 9.0)
    assert [name for _, name in world.winners] == ["lily"]


@pytest.mark.parametrize("num_machines", [3, 4, 5])
@pytest.mark.parametrize("seed", range(60))
def test_there_is_never_more_than_one_host_and_in_the_end_there_is_one(seed, num_machines):
    world = World(seed, num_machines)
    strike_at = 1003.0
    while world.now < 1120.0:
        if world.now > strike_at:
            world.strike()
            strike_at = world.now + world.chance.uniform(1.0, 10.0)
            acting = [machine for machine in world.machines.values() if machine.may_act]
            if acting and world.chance.random() < 0.3:
                acting[0].hand_over(world.chance.choice([name for name in world.names if name != acting[0].name]))
        world.step()
        acting = [name for name in world.names if world.machines[name].may_act]
        assert len(acting) <= 1, (world.now, acting)
    terms = [term for term, _ in world.winners]
    assert len(terms) == len(set(terms)), world.winners
    for machine in world.machines.values():
        machine.frozen_until = machine.stuck_until = 0.0
    world.cut = {}
    for _ in range(400):
        world.step()
    hosts = {world.machines[name].disk.ballot.host for name in world.names}
    assert len(hosts) == 1, hosts
    assert world.machines[hosts.pop()].may_act
