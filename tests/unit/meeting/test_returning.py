"""`potluck join` with the line of a machine that is no host any more, and on a machine that had become the host."""

import ssl
from pathlib import Path

import pytest

from potluck.core.errors import MeetingError
from potluck.gates.identity import load_or_make
from potluck.meeting.access.invitation import Invitation, fingerprint_of
from potluck.meeting.agent.messages import AgentPlace
from potluck.meeting.agent.succession import AgentSuccession
from potluck.meeting.client import returning
from potluck.meeting.client.joining import known_through
from potluck.meeting.client.returning import host_of_now, served_by_a_successor, was_host
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.wire import GateMember, GateOrders, Succession, Voters


@pytest.fixture
def cluster(tmp_path):
    """The homes of rosa and lily, which know of each other, and lines that each of them has printed."""
    homes = {name: Home(tmp_path / name) for name in ("rosa", "lily", "stranger")}
    certificates = {name: load_or_make(home.identity_dir).certificate for name, home in homes.items()}
    prints = {name: fingerprint_of(ssl.PEM_cert_to_DER_cert(one)) for name, one in certificates.items()}
    members = [
        GateMember(machine=name, number=number, certificate=certificates[name], addresses=["127.0.0.1"], port=29500)
        for number, name in enumerate(("rosa", "lily"))
    ]
    for name in ("rosa", "lily"):
        BallotFile(homes[name].succession_dir).note(
            orders=GateOrders(host="lily", block="127.77.0.0/17", members=members, runs={})
        )
        homes[name].remember(
            HostMembership(
                machine=name,
                host="lily",
                address="127.0.0.1",
                port=29500,
                fingerprint=prints["lily"].hex(),
                credential="c",
            )
        )
    lines = {
        name: Invitation(address="127.0.0.1", port=29500, token=b"t" * 16, fingerprint=one)
        for name, one in prints.items()
    }
    return homes, lines


@pytest.mark.parametrize(("machine", "is_host"), [("rosa", False), ("lily", True)])
def test_a_line_of_another_machine_of_the_cluster_leads_to_the_membership_of_now(cluster, machine, is_host):
    homes, lines = cluster
    membership = homes[machine].membership()
    assert was_host(homes[machine], membership) is is_host
    assert known_through(lines["rosa"], homes[machine]) == membership
    assert known_through(lines["lily"], homes[machine]) is None  # of the host that it knows, which does not answer
    assert known_through(lines["stranger"], homes[machine]) is None


class Gate:
    """A gate to which no other machine has a link."""

    socket = Path("/nonexistent")

    def start(self):
        pass

    def update(self, settings):
        pass


def test_who_has_noted_another_host_is_not_the_host_again(cluster):
    """The power was cut after the ballot and before the membership."""
    homes, _ = cluster
    lily = homes["lily"]
    ballots = BallotFile(lily.succession_dir)
    ballots.note(orders=ballots.ballot.orders.model_copy(update={"host": "rosa"}))
    assert was_host(lily, lily.membership())
    followed = host_of_now(lily, lily.membership(), Gate(), load_or_make(lily.identity_dir), within_s=0.0)
    assert followed.host == "rosa"
    assert lily.membership() == followed


@pytest.mark.parametrize(
    ("succession", "answers", "found"),
    [
        (Succession(term=3, successors=["rosa", "lily"]), {"lily": False}, None),
        (Succession(term=3, successors=["rosa", "lily"]), {"lily": True}, "lily"),
        (Succession(term=3, successors=["rosa", "lily"]), {}, None),  # it does not know this machine
        (Succession(term=3), {"lily": True}, None),  # lily gets no credential: it was no successor
        (
            Succession(
                term=3, successors=["lily"], electorates=[Voters(machines=["rosa", "lily"], tie_breaker="lily")]
            ),
            {"lily": True},
            None,  # with a vote, this machine hears by its links who is the host
        ),
    ],
)
def test_a_machine_that_has_left_asks_the_successors_of_its_silent_host(
    cluster, monkeypatch, succession, answers, found
):
    def come_back(membership):
        if membership.host not in answers:
            raise MeetingError("it was taken off the roster there", fix="")
        return answers[membership.host]

    monkeypatch.setattr(returning, "come_back", come_back)
    homes, lines = cluster
    rosa = homes["rosa"]
    ballots = BallotFile(rosa.succession_dir)
    ballots.note(orders=ballots.ballot.orders.model_copy(update={"host": "fern", "succession": succession}))
    rosa.remember(rosa.membership().model_copy(update={"host": "fern", "fingerprint": "00"}))
    followed = served_by_a_successor(rosa, rosa.membership())
    assert (None if followed is None else followed.host) == found
    if found is not None:
        assert followed.fingerprint == lines["lily"].fingerprint.hex()
        assert BallotFile(rosa.succession_dir).ballot.host == "lily"


def agent(home, told):
    place = AgentPlace(
        home=home, membership=home.membership(), gate="/nonexistent", threads=None, data_dir=Path("/nonexistent")
    )
    return place, AgentSuccession(place, told.append, {}, serves=True)


@pytest.mark.parametrize(("machine", "was"), [("lily", "lily"), ("rosa", "lily")])
def test_an_agent_follows_the_host_that_it_has_noted_also_if_its_membership_was_not_written(cluster, machine, was):
    """Else it would be the host, or follow the old one, in a term that has another host."""
    homes, _ = cluster
    now = "rosa" if machine == "lily" else "stranger"
    home = homes[machine]
    ballots = BallotFile(home.succession_dir)
    orders = ballots.ballot.orders
    if now == "stranger":
        joined = orders.members[0].model_copy(update={"machine": now, "number": 9})
        orders = orders.model_copy(update={"members": [*orders.members, joined]})
    ballots.note(orders=orders.model_copy(update={"host": now, "succession": Succession(term=5)}))
    place, own = agent(home, [])
    assert place.membership.host == was
    assert own.look() == Elsewhere(now, 5)
    own.become(Elsewhere(now, 5))
    assert (place.membership.host, home.membership().host) == (now, now)
    assert own.look() is None


def test_a_host_that_this_machine_does_not_know_is_said_once_with_what_to_type(cluster):
    homes, _ = cluster
    told = []
    place, own = agent(homes["rosa"], told)
    for _ in range(2):
        own.become(Elsewhere("opal", 7))
    assert len(told) == 1
    assert "opal is the host now, and this machine does not know it" in told[0]
    assert "potluck join p1-" in told[0]
    assert place.membership.host == "lily"
