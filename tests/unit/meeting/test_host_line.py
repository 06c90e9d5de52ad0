"""What a machine's delivering thread sends to the host: each report once, and workers are home when their files are."""

from dataclasses import replace

from potluck.meeting.agent.host_line import _Deliverer
from potluck.meeting.agent.messages import Delivered, Delivery, FilesToSend
from potluck.meeting.wire import LinkReport, Report, WorkerReport


class RecordingClient:
    """Keeps the reports that a host would get."""

    def __init__(self):
        self.reports = []

    def ask(self, method, path, report):
        assert (method, path) == ("POST", "/report")
        self.reports.append(report)


def files(folder, **changes):
    known = {"run": "one", "start_number": 1, "num_starts": 1, "folder": folder / "run", "is_at_host": False}
    return FilesToSend(**(known | changes), is_training=False)


def report(state="finished", **links):
    rows = [LinkReport(machine=name, way="direct", round_trip_s=round_trip_s) for name, round_trip_s in links.items()]
    return Report(devices=["cpu"], links=rows, workers=[WorkerReport(run="one", worker=0, state=state)])


def test_a_report_is_sent_when_something_has_changed_and_again_to_a_host_that_was_away(tmp_path):
    client, deliverer = RecordingClient(), _Deliverer("lily", lambda _: None)
    for round_trip_s in (0.1, 0.2):  # changes all the time, and is no news
        deliverer.send_report(client, Delivery(report("running", rosa=round_trip_s), ()), frozenset())
    assert len(client.reports) == 1
    deliverer.send_report(client, Delivery(report("stopped"), ()), frozenset())
    assert len(client.reports) == 2
    deliverer.reported = None
    deliverer.send_report(client, Delivery(report("stopped"), ()), frozenset())
    assert len(client.reports) == 3


def test_an_ended_worker_is_home_only_by_files_of_that_moment(tmp_path):
    client, posted = RecordingClient(), []
    deliverer = _Deliverer("lily", posted.append)
    before, now = files(tmp_path, num_starts=0), files(tmp_path)
    _, delivered = deliverer.send_files(client, (before,))  # there is no folder: nothing has to travel
    assert posted == [Delivered(frozenset([before]))]
    deliverer.send_report(client, Delivery(report(), (now,)), delivered)  # it has trained in between
    assert not client.reports[-1].workers[0].is_home
    _, delivered = deliverer.send_files(client, (now,))
    deliverer.send_report(client, Delivery(report(), (now,)), delivered)
    assert client.reports[-1].workers[0].is_home


def test_what_a_training_worker_wrote_is_never_all_at_the_host(tmp_path):
    is_busy, delivered = _Deliverer("lily", lambda _: None).send_files(
        RecordingClient(), (replace(files(tmp_path), is_training=True),)
    )
    assert not is_busy
    assert not delivered
