"""How machines reach each other, as people are told: what is direct, what the host relays, and the line that helps."""

import pytest

from potluck.meeting.host.pairs import link_lines, pair_links
from potluck.meeting.host.reported_links import ReportedLinks
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.wire import LinkReport, Reach
from tests.unit.meeting.test_doorway import facts


@pytest.fixture
def roster(tmp_path):
    found = MachineRoster(tmp_path / "roster.json", clock=lambda: 0.0)
    for number, name in enumerate(("rosa", "lily", "fern"), start=1):
        address = f"10.0.0.{number}"
        found.enrol(facts(name, address=address, firewall_command=f"sudo ufw allow on {name}"))
        found.change(name, reach=Reach(addresses=[address], port=29500))
    return found


def tell(roster, source, target, way, **more):
    links = roster.machines[source].links.by_machine.values()
    roster.change(source, links=ReportedLinks.of([*links, LinkReport(machine=target, way=way, **more)]))


def test_a_link_is_direct_if_one_side_could_dial(roster):
    tell(roster, "rosa", "lily", "direct", dialled=False, round_trip_s=0.002, trouble="no answer")
    tell(roster, "lily", "rosa", "direct", dialled=True, round_trip_s=0.001)
    link = pair_links(roster)[0]
    assert (link["way"], link["dialled_by"], link["round_trip_s"]) == ("direct", "lily", 0.001)
    assert "fix" not in link
    assert link_lines({"host": "rosa", "links": [link]}) == ["links, direct and encrypted: rosa-lily (1.0 ms)"]


def test_a_relay_is_named_with_the_line_that_ends_it(roster):
    for one, other in (("lily", "fern"), ("fern", "lily")):
        tell(roster, one, other, "relayed", trouble="no answer")
    link = pair_links(roster)[-1]
    assert link["machines"] == ["lily", "fern"]
    assert link["fix"] == "on lily: sudo ufw allow on lily; or on fern: sudo ufw allow on fern"
    lines = link_lines({"host": "rosa", "links": [link]})
    assert lines[0] == "link lily-fern goes through rosa: neither can dial the other"
    assert "sudo ufw allow on lily" in lines[1]


def test_the_rule_is_for_a_machine_that_is_not_behind_an_address_translation(roster):
    roster.change("lily", reach=Reach(addresses=["10.0.0.2"], port=29500, seen_at="192.0.2.7"))
    tell(roster, "lily", "fern", "relayed")
    assert pair_links(roster)[-1]["fix"].startswith("on fern")
    roster.change("fern", reach=Reach(addresses=["10.0.0.3"], port=29507, seen_at="192.0.2.7"))
    fix = "at 192.0.2.7, what lily is behind: forward port 29500 to 10.0.0.2:29500"
    assert pair_links(roster)[-1]["fix"] == fix
    windows = facts("lily", address="172.20.1.5", os="Ubuntu (WSL2)")
    roster.change("lily", facts=windows)
    assert "netsh interface portproxy add v4tov4 listenport=29500" in pair_links(roster)[-1]["fix"]


def test_what_nobody_has_told_yet_is_unknown_and_who_is_away_is_left_out(roster):
    assert {link["way"] for link in pair_links(roster)} == {"unknown"}
    roster.change("fern", has_left=True)
    assert [link["machines"] for link in pair_links(roster)] == [["rosa", "lily"]]
    assert link_lines({"host": "rosa", "links": pair_links(roster)}) == []
