"""What a host does for every question, report and second stays small when many machines have joined."""

import asyncio

import pytest

from potluck.meeting.host import pairs, service, shared_orders
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.pairs import pair_links, troubled_links
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.wire import LinkReport, Orders, PollRequest, Reach, Report
from tests.unit.meeting.test_doorway import facts

NAMES = [f"m{number}" for number in range(12)]


@pytest.fixture
def coordinator(tmp_path):
    """A host that all machines have joined."""
    roster = MachineRoster(tmp_path / "roster.json", clock=lambda: 0.0)
    host = facts(NAMES[0])
    for name in NAMES:
        roster.enrol(facts(name))
    return Coordinator(
        folder=tmp_path,
        facts=host,
        roster=roster,
        runs_dir=tmp_path / "experiments",
        lighthouses=Lighthouses("127.0.0.1", None),
        clock=lambda: 0.0,
    )


def report(way="direct", number=1):
    links = [LinkReport(machine=name, way=way) for name in NAMES]
    return Report(devices=["cpu"], reach=Reach(addresses=[f"10.0.0.{number}"], port=29500), links=links)


def test_what_all_machines_hear_alike_is_made_once_after_a_change(coordinator, monkeypatch):
    num_made = 0
    make = coordinator.roster.members

    def count():
        nonlocal num_made
        num_made += 1
        return make()

    monkeypatch.setattr(coordinator.roster, "members", count)
    coordinator.take("m1", report())
    digests = {coordinator.orders(name).digest for name in NAMES}
    assert (num_made, len(digests)) == (1, 1)
    coordinator.take("m2", report())
    orders = coordinator.orders("m3")
    assert num_made == 2
    assert orders.digest not in digests
    assert Orders.model_validate_json(coordinator.shared.encoded("m3", "", orders)) == orders


def test_who_knows_its_orders_already_is_not_sent_them_again(coordinator, monkeypatch):
    monkeypatch.setattr(service, "POLL_S", 0.05)
    for name in NAMES:
        coordinator.take(name, report())
    news = asyncio.run(service.give_orders(PollRequest(known=""), "m1", coordinator))
    known = Orders.model_validate_json(news.body)
    assert len(known.gate.members) == len(NAMES)
    nothing_new = asyncio.run(service.give_orders(PollRequest(known=known.digest), "m1", coordinator))
    assert Orders.model_validate_json(nothing_new.body).digest == known.digest
    assert len(nothing_new.body) < 300


def test_new_members_are_told_together_and_everything_else_at_once(coordinator):
    now = 0.0
    coordinator.shared._clock = lambda: now
    for name in NAMES:
        coordinator.take(name, report())
    known = coordinator.orders("m1")
    coordinator.shared.encoded("m1", "", known)
    coordinator.take("m2", report(number=2))
    changed = coordinator.orders("m1")
    assert coordinator.shared.pause_s("m1", known.digest, changed) == pytest.approx(len(NAMES) / 100)
    assert coordinator.shared.pause_s("m3", known.digest, changed) <= 0, "m3 was told of nobody yet"
    now = len(NAMES) / 100
    assert coordinator.shared.pause_s("m1", known.digest, changed) <= 0
    coordinator.shared.encoded("m1", known.digest, changed)
    coordinator.ask_to_leave("m1", by="m1")
    assert coordinator.shared.pause_s("m1", changed.digest, coordinator.orders("m1")) == 0.0


def test_a_machine_is_told_only_of_members_that_have_changed_since_it_was_told(coordinator):
    for number, name in enumerate(NAMES):
        coordinator.take(name, report(number=number))

    def told(before):
        orders = coordinator.orders("m1")
        sent = Orders.model_validate_json(coordinator.shared.encoded("m1", before.digest if before else "", orders))
        assert sent.complete(before) == orders, "in the same order, too"
        return orders, sent.member_changes

    first, changes = told(None)
    assert changes is None
    coordinator.take("m3", report(number=99))
    second, changes = told(first)
    assert [one.machine for one in changes.changed] == ["m3"]
    coordinator.roster.change("m5", has_left=True)
    coordinator.take("m4", report(number=98))
    third, changes = told(second)
    assert ([one.machine for one in changes.changed], changes.gone) == (["m4"], ["m5"])
    _, changes = told(first)  # a machine that has missed some
    assert ([one.machine for one in changes.changed], changes.gone) == (["m3", "m4"], ["m5"])
    coordinator.ask_to_leave("m1", by="m1")
    _, changes = told(third)
    assert (changes.changed, changes.gone) == ([], [])


def test_what_gates_know_of_a_machine_is_made_anew_only_when_it_has_changed(coordinator):
    for number, name in enumerate(NAMES):
        coordinator.take(name, report(number=number))
    first = coordinator.roster.members()
    coordinator.take("m3", report(number=99))
    second = coordinator.roster.members()
    assert [one.machine for one, other in zip(first, second, strict=True) if one is not other] == ["m3"]
    assert second[3].addresses == ["10.0.0.99"]
    coordinator.roster.change("m5", has_left=True)
    assert [one.machine for one in coordinator.roster.members()] == [name for name in NAMES if name != "m5"]


def test_changes_that_come_together_are_looked_at_together(coordinator, monkeypatch):
    """Each change wakes all machines that wait: each of these looks once for all that come within a moment."""
    monkeypatch.setattr(service, "POLL_S", 0.5)
    monkeypatch.setattr(shared_orders, "_GATHER_S_A_MACHINE", 0.1 / len(NAMES))
    looks = []
    orders = coordinator.orders
    monkeypatch.setattr(coordinator, "orders", lambda machine: looks.append(machine) or orders(machine))
    for name in NAMES:
        coordinator.take(name, report())
    known = coordinator.orders("m1")

    async def live():
        waiting = asyncio.ensure_future(service.give_orders(PollRequest(known=known.digest), "m1", coordinator))
        for _ in range(20):
            await asyncio.sleep(0.01)
            coordinator.changes.tell()
        return await waiting

    looks.clear()
    asyncio.run(live())
    assert 2 <= len(looks) <= 5


def test_links_are_compared_only_where_one_is_not_direct(coordinator, monkeypatch):
    for name in NAMES:
        coordinator.take(name, report())
    num_compared = 0
    compare = pairs._pair

    def count(*arguments):
        nonlocal num_compared
        num_compared += 1
        return compare(*arguments)

    monkeypatch.setattr(pairs, "_pair", count)
    coordinator.tick()
    assert coordinator.status(with_direct=False)["links"] == []
    assert num_compared == 0
    assert len(coordinator.status()["links"]) == len(NAMES) * (len(NAMES) - 1) / 2


def test_troubled_links_are_those_of_all_links_that_are_relayed_or_down(coordinator):
    ways = ("direct", "relayed", "down")
    for one, name in enumerate(NAMES):
        links = [LinkReport(machine=other, way=ways[(one * two) % 3]) for two, other in enumerate(NAMES)]
        coordinator.take(name, Report(devices=["cpu"], reach=Reach(addresses=["10.0.0.1"], port=29500), links=links))
    coordinator.roster.change("m5", has_left=True)
    expected = [link for link in pair_links(coordinator.roster) if link["way"] in ("relayed", "down")]
    assert expected
    assert troubled_links(coordinator.roster) == expected


def test_reports_are_saved_together_once_a_second(coordinator, monkeypatch):
    num_written = 0
    write = coordinator.roster._write

    def count():
        nonlocal num_written
        num_written += 1
        write()

    monkeypatch.setattr(coordinator.roster, "_write", count)
    for number, name in enumerate(NAMES, start=1):
        coordinator.take(name, report(number=number))
    assert num_written == 0
    coordinator.tick()
    coordinator.tick()
    assert num_written == 1
    again = MachineRoster(coordinator.roster._path)
    assert [one.reach.addresses for one in again.machines.values()] == [[f"10.0.0.{n}"] for n in range(1, 13)]
