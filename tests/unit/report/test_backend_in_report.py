"""The report, the history and the metrics of a run name its backend, and NCCL's variables on each machine."""

import msgspec

from potluck.events.log import read_records
from potluck.events.types import BackendChosen, Record
from potluck.report.prometheus import expose
from potluck.report.story import tell
from potluck.report.view import read_run
from tests.unit.report.runs import eventful

NCCL = BackendChosen(
    step=1,
    backend="nccl",
    reason="every worker has a CUDA device of its own and NCCL 2.27.3",
    variables={"NCCL_IB_DISABLE": "1"},
    defaults=["NCCL_IB_DISABLE"],
)
GLOO = BackendChosen(step=2, backend="gloo", reason="fern trains on its CPU", through_host=True, held_back_by=["fern"])


def with_backend(folder, *chosen):
    """The run as if its workers had chosen these backends at its end."""
    for file in folder.event_files():
        records = list(read_records(file))
        last = records[-1]
        more = [Record(sequence=last.sequence + n, time=last.time + n, event=one) for n, one in enumerate(chosen, 1)]
        file.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in [*records, *more]))
    return read_run(folder)


def test_a_report_names_the_backend_its_reason_and_the_variables_of_each_machine(tmp_path):
    view = with_backend(eventful(tmp_path), GLOO, NCCL)
    what = tell(view).what
    assert what["gradients"] == f"NCCL, because {NCCL.reason}"
    assert what["NCCL on rosa"] == what["NCCL on lily"] == "NCCL_IB_DISABLE=1 (set by Potluck)"
    told = [line.text for line in view.happenings() if line.kind == "backend"]
    assert [text.partition(",")[0] for text in told] == ["gradients: Gloo through host memory", "gradients: NCCL"]
    assert 'potluck_run_backend{run="eventful",backend="nccl"} 1.0' in expose([view])


def test_a_report_says_which_machines_keep_the_others_from_nccl(tmp_path):
    what = tell(with_backend(eventful(tmp_path), GLOO)).what
    assert what["gradients"] == "Gloo through host memory, because fern trains on its CPU"
    assert what["NCCL"].startswith("without fern the others would use NCCL; whether that is faster is not measured")
    assert "NCCL on rosa" not in what
