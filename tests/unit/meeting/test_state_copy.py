"""A successor's copy of the host's state: encrypted, given to successors only, and enough to be the host."""

import json

from potluck.gates.identity import load_or_make
from potluck.meeting.agent.messages import AgentPlace, NoteHeard
from potluck.meeting.agent.succession import AgentSuccession
from potluck.meeting.home import Home, HostMembership
from potluck.meeting.host.reign import Reign, SuccessionRule
from potluck.meeting.host.restoring import finish_takeover, is_restored, restore
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.run_files import RunFiles
from potluck.meeting.host.state_copies import StateCopies
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.succession.ballot import BallotFile
from potluck.meeting.succession.finding import Elsewhere
from potluck.meeting.succession.notes import HostIs
from potluck.meeting.succession.state_copy import HostStateCopy, KeptCopy
from potluck.meeting.wire import Succession
from tests.unit.meeting.conftest import TOKEN
from tests.unit.meeting.test_doorway import facts


def test_only_successors_get_the_hosts_state_and_files(host):
    _, client = host
    for path in ("/succession/files/one?file=events/rosa-0.jsonl&offset=0",):
        assert client("lily").get(path).status_code == 200
        assert client("fern").get(path).status_code == 400
    assert client("lily").post("/succession", json={"known": 0}).status_code == 200
    refused = client("fern").post("/succession", json={"known": 0})
    assert refused.status_code == 400
    assert "no successor" in refused.json()["error"]


def test_a_state_is_sent_once_and_again_when_it_has_changed(host):
    coordinator, client = host
    first = client("lily").post("/succession", json={"known": 0}).json()
    state = HostStateCopy.model_validate(first["state"])
    assert json.loads(state.roster)["machines"].keys() == {"rosa", "lily", "fern"}
    assert client("lily").post("/succession", json={"known": state.rank}).json()["state"] is None
    coordinator.heard("fern")  # not worth a copy
    assert client("lily").post("/succession", json={"known": state.rank}).json()["state"] is None
    coordinator.put_run(coordinator.state.runs["one"].with_(expected=7))
    again = HostStateCopy.model_validate(client("lily").post("/succession", json={"known": state.rank}).json()["state"])
    assert again.rank > state.rank
    assert coordinator.succession.reign.copies.rank("lily") == state.rank


def test_of_event_files_only_whole_lines_are_copied_and_no_other_file(host):
    coordinator, client = host
    name = next(iter(coordinator.state.runs))
    answer = client("lily").get(f"/succession/files/{name}?file=events/rosa-0.jsonl&offset=0")
    assert answer.content == b'{"whole": 1}\n'
    for file in ("../../etc/passwd", "checkpoints/x.pth", "events/../run.yaml", "host.lock"):
        assert client("lily").get(f"/succession/files/{name}?file={file}&offset=0").status_code == 400, file


def test_the_copy_on_disk_is_encrypted_with_the_machines_own_key(host, tmp_path):
    coordinator, _ = host
    own, other = load_or_make(tmp_path / "lily"), load_or_make(tmp_path / "fern")
    kept = KeptCopy(tmp_path / "copy", own)
    assert kept.rank == 0
    state = coordinator.succession.take()
    kept.keep(state)
    content = (tmp_path / "copy" / "state.sealed").read_bytes()
    for secret in (TOKEN.hex(), "rosa", "credential_hash"):
        assert secret.encode() not in content
    assert KeptCopy(tmp_path / "copy", own).state == state
    assert KeptCopy(tmp_path / "copy", other).state is None
    (tmp_path / "copy" / "state.sealed").write_bytes(content[:-1] + b"x")
    assert KeptCopy(tmp_path / "copy", own).state is None, "damaged: it is fetched again"


def test_a_restored_host_knows_machines_runs_and_token(host, tmp_path):
    coordinator, _ = host
    home = Home(tmp_path / "home")
    restore(home, coordinator.succession.take(), {})
    roster = MachineRoster(home.host_dir / "roster.json")
    assert roster.machines.keys() == {"rosa", "lily", "fern"}
    assert roster.block == coordinator.roster.block
    runs = RunFiles(home.host_dir / "runs", Troubles(lambda _: None)).load()
    name = next(iter(coordinator.state.runs))
    assert runs[name].folder == home.runs_dir.absolute() / name
    assert runs[name].secret == coordinator.state.runs[name].secret
    assert (home.host_dir / "token").read_text() == TOKEN.hex()


def test_a_takeover_that_has_broken_off_is_finished_and_the_state_of_an_earlier_reign_is_not_used(host, tmp_path):
    coordinator, _ = host
    home = Home(tmp_path / "home")
    identity = load_or_make(home.identity_dir)
    kept = KeptCopy(home.succession_dir, identity)
    first = coordinator.succession.take()
    restore(home, first, {})
    coordinator.put_run(next(iter(coordinator.state.runs.values())).with_(expected=9))
    kept.keep(coordinator.succession.take())
    ballots = BallotFile(home.succession_dir)
    ballots.note(orders=coordinator.shared.fresh())
    finish_takeover(home, "lily", ballots.ballot, identity)
    assert not is_restored(home, kept.state), "this machine is not the host"
    finish_takeover(home, "rosa", ballots.ballot, identity)
    assert is_restored(home, kept.state)
    own = home.host_dir / "roster.json"
    own.write_text(own.read_text() + "\n")  # the host goes on
    finish_takeover(home, "rosa", ballots.ballot, identity)
    assert own.read_text().endswith("\n"), "nothing is restored twice"


def test_a_copy_says_of_which_cluster_it_is(host, tmp_path):
    coordinator, _ = host
    kept = KeptCopy(tmp_path / "copy", load_or_make(tmp_path / "lily"))
    assert kept.block is None
    kept.keep(coordinator.succession.take())
    assert kept.block == coordinator.roster.block
    kept.forget()
    assert (kept.block, kept.rank) == (None, 0)
    assert KeptCopy(tmp_path / "copy", load_or_make(tmp_path / "lily")).rank == 0


def test_a_copy_of_another_cluster_is_forgotten_at_the_first_orders(host, tmp_path):
    """Else a newer rank from there would keep this host's state away, and the other cluster's would be restored."""
    coordinator, _ = host
    home = Home(tmp_path / "home")
    kept = KeptCopy(home.succession_dir, load_or_make(home.identity_dir))
    kept.keep(coordinator.succession.take().model_copy(update={"term": 9}))
    membership = HostMembership(
        machine="lily", host="rosa", address="127.0.0.1", port=29500, fingerprint="00", credential="x"
    )
    place = AgentPlace(home=home, membership=membership, gate=str(tmp_path / "gate"), threads=None, data_dir=tmp_path)
    own = AgentSuccession(place, lambda _: None, {})
    same = coordinator.shared.fresh().model_copy(update={"succession": Succession()})
    own.follow(same)
    assert KeptCopy(home.succession_dir, load_or_make(home.identity_dir)).rank > 0
    own.follow(same.model_copy(update={"block": "127.9.0.0"}))
    assert KeptCopy(home.succession_dir, load_or_make(home.identity_dir)).rank == 0


def test_the_state_of_a_host_that_has_started_again_is_newer_than_any_before(tmp_path):
    roster = MachineRoster(tmp_path / "roster.json")
    roster.enrol(facts("rosa", address="127.0.0.1"))
    first = Reign("rosa", SuccessionRule())
    copies = StateCopies(TOKEN, first)
    for name in ("lily", "fern"):
        roster.enrol(facts(name))
        before = copies.take(roster, {})
    again = Reign("rosa", SuccessionRule(), first.succession)
    assert StateCopies(TOKEN, again).take(roster, {}).rank > before.rank, "or successors would keep the old state"


def test_an_agent_follows_a_successor_that_says_it_is_the_host_and_no_other_member(host, tmp_path):
    coordinator, _ = host
    membership = HostMembership(
        machine="fern", host="rosa", address="127.0.0.1", port=29500, fingerprint="00", credential="x"
    )
    home = Home(tmp_path / "fern")
    place = AgentPlace(home=home, membership=membership, gate=str(tmp_path / "gate"), threads=None, data_dir=tmp_path)
    own = AgentSuccession(place, lambda _: None, {})
    own.follow(coordinator.shared.fresh())
    own.hear(NoteHeard("iris", HostIs(term=99)))
    assert own.look() is None
    own.hear(NoteHeard("lily", HostIs(term=1)))
    assert own.look() is None, "of the term on the disk"
    own.hear(NoteHeard("lily", HostIs(term=2)))
    assert own.look() == Elsewhere("lily", 2)
