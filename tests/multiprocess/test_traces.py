"""A trace of torch.profiler comes home to the host from every machine that trained."""

import gzip
import json
import signal

from tests.multiprocess.command import SMALL, Command
from tests.multiprocess.test_meeting_door import RealHost, free_port

RUN = "traced"


def test_traces_of_another_machine_are_in_the_hosts_folder_and_in_the_report(workplace):
    host = RealHost(free_port())
    lily = Command("join", host.invitation, "--name", "lily", "--devices", "cpu,cpu", home="lily")
    try:
        lily.wait_for("waiting for work")
        training = Command("train", *SMALL, "--max-steps", "12", "--enable-profiling", "--experiment-name", RUN)
        code, output = training.finish(100)
        assert code == 0, output
    finally:
        lily.signal(signal.SIGINT)
        lily.finish(60)
        host.end()
    files = sorted((workplace / "experiments" / RUN / "traces").iterdir())
    assert [file.name for file in files] == ["lily-0.steps-5-8.json.gz", "lily-1.steps-5-8.json.gz"]
    for file in files:
        assert json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    code, report = Command("report", RUN).finish(60)
    assert code == 0, report
    assert "lily-0 on cpu, steps 5 to 8: " in report
    assert "aten::" in report
