"""The host's paths: nobody gets in without a credential, and no request, however strange, breaks the host."""

import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from potluck.meeting.access.proof import FailureLimit
from potluck.meeting.access.token import metrics_key
from potluck.meeting.host.admission import Door
from potluck.meeting.host.coordinator import Coordinator
from potluck.meeting.host.lighthouses import Lighthouses
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.service import make_service
from potluck.meeting.transfer.bundle import BundleCache
from potluck.report.prometheus import CONTENT_TYPE
from tests.unit.meeting.test_doorway import facts
from tests.unit.meeting.test_runs_on_machines import record


@pytest.fixture
def service(tmp_path):
    """A service with one machine and one finished run, and that machine's credential."""
    folder = tmp_path
    host = facts("rosa", address="127.0.0.1")
    roster = MachineRoster(folder / "roster.json")
    credential = roster.enrol(host)
    roster.enrol(facts("lily"))
    run_folder = folder / "experiments" / "one"
    run_folder.mkdir(parents=True)
    coordinator = Coordinator(
        folder=folder,
        facts=host,
        roster=roster,
        runs_dir=folder / "experiments",
        lighthouses=Lighthouses("127.0.0.1", None),
    )
    coordinator.put_run(record("rosa", "lily", state="finished").with_(folder=run_folder))
    door = Door(token=b"t" * 16, fingerprint=b"f" * 16, facts=host, roster=roster)
    app = make_service(door=door, coordinator=coordinator, bundles=BundleCache(folder / "bundles"))
    with TestClient(app, raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer rosa:{credential}"
        door.failures = FailureLimit(most=10**9)
        yield client, app, door


def test_only_the_version_can_be_asked_without_a_credential(service):
    client, app, _ = service
    asked = 0
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            answer = client.request(method, path.replace("{run}", "one"), headers={"Authorization": ""})
            assert answer.status_code == (200 if path == "/version" else 401), (method, path)
            asked += 1
    assert asked >= 15
    assert client.get("/docs").status_code == client.get("/openapi.json").status_code == 404


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer rosa:", "Bearer rosa:wrong", "Bearer nobody:x", "Basic x"])
def test_a_wrong_credential_is_refused_with_words(service, header):
    answer = service[0].get("/status", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.json()["fix"]


def test_the_key_for_metrics_reads_them_and_opens_nothing_else(service):
    client, app, _ = service
    watcher = {"Authorization": f"Bearer {metrics_key(b't' * 16)}"}
    answer = client.get("/metrics", headers=watcher)
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    assert client.get("/metrics").status_code == 200  # a machine may look as well
    for path, methods in app.openapi()["paths"].items():
        if path not in ("/version", "/metrics"):
            for method in methods:
                assert client.request(method, path.replace("{run}", "one"), headers=watcher).status_code == 401, path


def test_guessing_the_key_for_metrics_has_to_wait(service):
    client, _, door = service
    door.failures = FailureLimit(most=3)
    wrong = {"Authorization": f"Bearer {'0' * 64}"}
    assert [client.get("/metrics", headers=wrong).status_code for _ in range(4)] == [401, 401, 401, 429]


def test_one_machine_cannot_write_anothers_files(service):
    client = service[0]
    for name in ("events/lily-1.jsonl", "events/../../x.jsonl", "run.yaml", "logs/lily-1.log", "/etc/passwd"):
        answer = client.post("/runs/one/files", params={"file": name, "offset": 0}, content=b"{}\n")
        assert answer.status_code == 400, name
    answer = client.post("/runs/one/files", params={"file": "events/rosa-0.jsonl", "offset": 0}, content=b"{}\n")
    assert answer.json() == {"size": 3}


def test_a_checkpoint_arrives_in_parts_and_only_whole(service):
    import hashlib

    client, content = service[0], bytes(range(256)) * 4
    good = {"total": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def put(name, part, offset, **query):
        return client.put(f"/runs/one/checkpoints/{name}", params={**good, "offset": offset, **query}, content=part)

    assert put("model_epoch_1.pth", content[:600], 0).json() == {"size": 600}
    assert put("model_epoch_1.pth", content[:600], 0).json() == {"size": 600}  # the same part again
    assert put("model_epoch_1.pth", content[700:], 700).json() == {"size": 600}  # a gap: go back
    assert put("model_epoch_1.pth", content[600:], 600).json() == {"size": 1024}
    assert put("model_epoch_2.pth", content, 0, sha256="0" * 64).json() == {"size": 0}  # damaged: all of it again
    assert put("../../x.pth", content, 0).status_code in (400, 404, 405, 422)
    assert put("x.pth", content, 0).status_code == 400
    folder = service[1].state.coordinator.state.find_run("one").folder / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["model_epoch_1.pth"]
    assert (folder / "model_epoch_1.pth").read_bytes() == content


def test_a_body_that_is_too_large_is_not_read(service):
    answer = service[0].post("/report", content=b"x" * 5_000_000)
    assert answer.status_code == 413


def test_secrets_are_in_no_answer(service):
    client, app, _ = service
    shown = client.get("/status").text + client.get("/runs/one").text + client.get("/version").text
    assert app.state.coordinator.state.runs["one"].secret not in json.loads(json.dumps(shown)).split('"')
    assert "credential" not in shown


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
words = st.sampled_from(["one", "rosa", "lily", "0" * 64, "..", "model_epoch_1.pth", "events/rosa-0.jsonl"])
keys = st.sampled_from(
    (
        *("known", "devices", "workers", "run", "worker", "state", "name", "task", "settings", "bundle", "entry"),
        *("machines", "challenge", "facts", "offsets", "is_leaving", "resume", "without"),
    )
)
shaped = st.dictionaries(keys, plain | words | st.dictionaries(keys, plain | words, max_size=4), max_size=6)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_is_refused_and_breaks_nothing(service, data):
    client, app, _ = service
    path, methods = data.draw(st.sampled_from(sorted(app.openapi()["paths"].items())))
    method = data.draw(st.sampled_from(sorted(methods)))
    for parameter in ("run", "file", "digest", "name"):
        text = data.draw(words | st.text(min_size=1, max_size=30))
        path = path.replace(f"{{{parameter}}}", quote(text, safe=""))
    query = data.draw(
        st.dictionaries(st.sampled_from(["file", "offset", "total", "sha256"]), words | st.text(max_size=9))
    )
    body = data.draw(st.binary(max_size=200) | (plain | shaped).map(lambda value: json.dumps(value).encode()))
    if path == "/poll":
        body = b"x" + body  # a good one would wait for news
    answer = client.request(method, path, params=query, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, (method, path, query, body, answer.text)
    if answer.status_code >= 400 and method != "head":
        assert set(answer.json()) == {"error", "fix"}
