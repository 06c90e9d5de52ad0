"""Prometheus itself scrapes a host while a run trains, and answers every query of the Grafana dashboard."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.multiprocess.command import SMALL, Command
from tests.multiprocess.test_meeting_door import HERE, RealHost, free_port

DOCS = Path(__file__).parents[2] / "docs"
RUN = "watched"
pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed"),
]


class Prometheus:
    """The real server, with the configuration that the docs show."""

    def __init__(self, host_port, host_dir):
        page = (DOCS / "seeing.md").read_text()
        (config,) = re.findall(r"```yaml\n(scrape_configs:\n.*?)```", page, re.DOTALL)
        for shown, real in (
            ("/etc/prometheus/potluck-metrics-key", host_dir / "metrics-key"),
            ("/etc/prometheus/potluck-certificate.pem", host_dir.parent / "identity" / "certificate.pem"),
            ("192.168.1.10:29500", f"{HERE}:{host_port}"),
        ):
            assert shown in config
            config = config.replace(shown, str(real))
        Path("prometheus.yml").write_text("global: {scrape_interval: 1s}\n" + config)
        self._address = f"{HERE}:{free_port()}"
        with Path("prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", "--log.level=warn"),
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)

    def ask(self, path, **query):
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def wait_for(self, expression, timeout_s=60):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                if found := self.query(expression):
                    return found
            except (urllib.error.URLError, ConnectionError):  # it is starting
                pass
            time.sleep(0.3)
        raise AssertionError(f"{expression} has no value: {Path('prometheus.log').read_text()} {self.ask('targets')}")


def expressions():
    """Every query of the dashboard, its variables included."""
    dashboard = json.loads((DOCS / "grafana" / "potluck.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$run", RUN)
    (label,) = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["name"] == "run"]
    yield re.fullmatch(r"label_values\((\w+), run\)", label)[1]


def test_prometheus_scrapes_a_host_and_answers_the_grafana_dashboard(workplace):
    host = RealHost(free_port(), "--devices", "cpu,cpu", "--threads", "1")
    training = None
    try:
        with Prometheus(host.port, workplace / "home" / "host") as prometheus:
            training = Command("train", *SMALL, "--epochs", "500", "--experiment-name", RUN)
            prometheus.wait_for("potluck_run_step > 30")
            prometheus.wait_for("potluck_run_score")
            (target,) = prometheus.ask("targets")["activeTargets"]
            assert target["health"] == "up", target["lastError"]
            for expression in expressions():
                has_value = "gpu" not in expression  # the test's machine may have none; the query is asked all the same
                found = prometheus.wait_for(expression, 20) if has_value else prometheus.query(expression)
                assert all(one["metric"]["run"] == RUN for one in found)
            assert prometheus.query(f'potluck_run_up{{run="{RUN}"}}')[0]["value"][1] == "1"
            assert Command("stop", RUN).finish(60)[0] == 0
            prometheus.wait_for("potluck_run_up == 0", 30)
            scraping = prometheus.query("max_over_time(scrape_duration_seconds[5m])")
            print(f"the longest scrape took {float(scraping[0]['value'][1]):.3f} s")
    finally:
        if training is not None:
            training.finish(60)
        host.end()
