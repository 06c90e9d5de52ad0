"""The words about the backend of a group: terminal, status, report and dashboard use the same."""

import msgspec

from potluck.events.progress_lines import backend_lines, variables_text
from potluck.events.state import replay
from potluck.events.types import BackendChosen, Record
from potluck.meeting.transfer.backend_finder import BackendFinder
from potluck.report.history import History

GLOO = BackendChosen(step=1, backend="gloo", reason="fern trains on its CPU", through_host=True, held_back_by=["fern"])
NCCL = BackendChosen(
    step=7,
    backend="nccl",
    reason="every worker has a CUDA device of its own and NCCL 2.27.3",
    variables={"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "=enp4s0"},
    defaults=["NCCL_SOCKET_IFNAME"],
)


def write_events(file, events):
    records = [Record(sequence=n, time=float(n), event=event) for n, event in enumerate(events)]
    file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def test_the_lines_name_the_backend_the_reason_and_what_is_not_measured():
    first, second = backend_lines(GLOO)
    assert first == "gradients: Gloo through host memory, because fern trains on its CPU"
    assert second.startswith("without fern the others would use NCCL; whether that is faster is not measured")
    assert backend_lines(NCCL) == [f"gradients: NCCL, because {NCCL.reason}"]


def test_variables_in_force_say_who_set_them():
    assert variables_text(NCCL) == "NCCL_DEBUG=INFO (yours), NCCL_SOCKET_IFNAME==enp4s0 (set by Potluck)"


def test_the_state_has_the_newest_backend():
    records = [Record(sequence=n, time=float(n), event=event) for n, event in enumerate([GLOO, NCCL])]
    assert replay(records).backend == NCCL


def test_a_history_repeats_no_backend_that_stays():
    history = History()
    for at, chosen in [(1.0, GLOO), (2.0, NCCL), (1.5, GLOO), (3.0, GLOO)]:
        history.take(at, chosen, machine="rosa", has_started=True)
    told = [(line.time, line.text.split(",")[0]) for line in history.with_absences([])]
    assert told == [(1.0, "gradients: Gloo through host memory"), (2.0, "gradients: NCCL"), (3.0, told[0][1])]


def test_a_host_finds_the_newest_backend_in_long_files(tmp_path):
    finder = BackendFinder(tmp_path)
    assert finder.look() is None
    events = tmp_path / "events"
    events.mkdir()
    write_events(events / "rosa-0.jsonl", [GLOO])
    (events / "lily-1.jsonl").write_bytes(b"damaged backend_chosen\n" + b"x" * 100)
    assert finder.look() == GLOO
    write_events(events / "rosa-0.jsonl", [GLOO, NCCL])
    assert finder.look() == NCCL
