"""The modes of exchange in `potluck plan`, from profiles that keep the links between machines."""

import json

from potluck.measuring.profile_store import StoredProfile, newest_links, save_profile
from potluck.meeting.client.measuring import _peers
from potluck.meeting.questions import LinkSeen, LinksSwept
from potluck.planning.costs import ComputeProfile, LinkProfile
from tests.unit.cli.test_plan import TINY, home, potluck, profile  # noqa: F401  a fixture


def test_the_plan_has_a_row_for_each_exchange_and_says_what_auto_takes(home, workplace):  # noqa: F811
    files = [profile(workplace, "oak", 0.001), profile(workplace, "elm", 0.001)]
    given = [*TINY, *files, "--link", "oak=1gbit", "--link", "elm=100mbit"]
    found = json.loads(potluck("plan", *given, "--steps", "6000", "--loss-price", "0.5", "--json"))
    assert [row["mode"] for row in found["exchanges"]] == ["exact", "fp16", "int8", "int4", "rounds", "islands"]
    assert found["exchange_auto"] in ("fp16", "int8", "int4")
    assert found["exchanges"][0]["samples_per_s"] == found["samples_per_s"]
    assert found["exchanges"][4]["warm_up_steps"] == 1000
    dear = json.loads(potluck("plan", *given, "--loss-price", "50", "--json"))
    assert dear["exchange_auto"] == "rounds"
    text = potluck("plan", *given)
    assert "--exchange auto would take" in text
    assert "price in loss" in text
    assert "--exchange auto" not in potluck("plan", *TINY, files[0])


def test_homes_are_found_in_profiles(home, workplace):  # noqa: F811
    near, far = (LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=rate) for rate in (1e8, 1e6))
    peers = {"a1": {"a2": near, "b1": far}, "a2": {"a1": near, "b1": far}, "b1": {"a1": far, "a2": far}}
    files = [
        profile(workplace, name, 0.002, link=near, peers=links, gradient_bytes=200_000) for name, links in peers.items()
    ]
    found = json.loads(potluck("plan", *TINY, *files, "--steps", "6000", "--loss-price", "0.5", "--json"))
    assert found["exchanges"][5]["islands"] == [["a1", "a2"], ["b1"]]


def test_links_of_another_models_profile_serve_too(tmp_path):
    compute, link = ComputeProfile(fixed_s=0.0, per_sample_s=0.1), LinkProfile(latency_s=0.0, bandwidth_bytes_per_s=1e6)
    known = {"machine": "oak", "device": "cpu", "precision": "no", "compute": compute, "gradient_bytes": 8}
    assert newest_links(tmp_path, "oak") is None
    save_profile(tmp_path, StoredProfile(model="own", measured_at=9.0, **known))
    save_profile(tmp_path, StoredProfile(model="small", measured_at=1.0, link=link, peers={"elm": link}, **known))
    found = newest_links(tmp_path, "oak")
    assert found is not None
    assert found.peers == {"elm": link}


def test_each_machine_keeps_its_own_links_of_a_sweep():
    one, two, three = (LinkSeen(latency_s=0.0, bytes_per_s=rate, error=0.0) for rate in (1.0, 2.0, 3.0))
    swept = LinksSwept(ring=one, pairs={"a-b": one, "a-c-d": two, "b-c-d": three}, machines={})
    assert _peers("a", ("a", "b", "c-d"), swept) == {"b": one, "c-d": two}
    assert _peers("c-d", ("a", "b", "c-d"), swept) == {"a": two, "b": three}
