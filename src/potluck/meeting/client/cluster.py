"""The cluster as a command uses it: ask the host for a run, follow the run, stop it."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potluck.core.errors import MeetingError
from potluck.core.run_folder import check_run_name
from potluck.core.states import ENDED
from potluck.meeting.client.client import HostClient, HostInTroubleError, HostSilentError
from potluck.meeting.client.state_upload import send_state
from potluck.meeting.home import Home
from potluck.meeting.transfer.bundle import Bundle
from potluck.meeting.wire import NewsRequest, RunRequest
from potluck.report.account import Account
from potluck.report.account_file import account_from_data

_START_S = 90.0
_ANSWER_S = 10.0  # twice the host's long poll for news
_BESIDE_S = 4.0
_SILENCE_S = 1.0
_FULL = 1 << 16  # characters; the host sends up to four times as many bytes of a file at once


@dataclass(frozen=True, slots=True)
class News:
    """New lines since the previous request, as (file, text), and the host's description of the run."""

    chunks: list[tuple[str, str]]
    run: dict[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, all its files are at the host, and all their lines have been read."""
        return self.run["state"] in ENDED and self.run["is_home"] and not self.chunks

    @property
    def has_more(self) -> bool:
        """Whether a file may have more lines now: the host sends a long file in several answers."""
        return any(len(text) >= _FULL for _, text in self.chunks)


class ClusterClient:
    """Client of the host that this machine has joined."""

    def __init__(self, home: Home, timeout_s: float = _ANSWER_S) -> None:
        membership = home.membership()
        if membership is None:
            raise MeetingError(
                "this machine has not joined a host",
                fix="paste the line that potluck host prints on another machine, or start one here: potluck host",
            )
        self._home = home
        self.membership = membership
        self._client = HostClient.of(membership, timeout_s=timeout_s)

    def beside(self) -> "ClusterClient":
        """Another client of the same host, for requests while this one waits for an answer."""
        return ClusterClient(self._home, timeout_s=_BESIDE_S)

    def __enter__(self) -> "ClusterClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def start(self, request: RunRequest) -> dict[str, Any]:
        """Ask the host for a run; returns its description. The host waits for machines that are getting ready."""
        with HostClient.of(self.membership, timeout_s=_START_S) as client:
            return dict(client.ask("POST", "/runs", request))

    def send_bundle(self, bundle: Bundle) -> None:
        with HostClient.of(self.membership, timeout_s=_START_S) as client:
            client.send("PUT", f"/bundles/{bundle.hash}", bundle.data)

    def send_catalogue(self, digest: str, content: bytes) -> None:
        """Give the host the list of a shared folder's files."""
        with HostClient.of(self.membership, timeout_s=_START_S) as client:
            client.send("PUT", f"/catalogues/{digest}", content)

    def send_state(self, path: Path) -> str:
        """Send a checkpoint file that a run is to begin with; returns its hash."""
        with HostClient.of(self.membership, timeout_s=_START_S) as client:
            return send_state(client, path)

    def follow(
        self,
        run: str,
        when_silent: Callable[[str], None],
        written: Mapping[str, int] | None = None,
        *,
        only_logs: bool = False,
        tail_bytes: int | None = None,
    ) -> Iterator[News]:
        """Yield news of the run until it is over; while the host is silent, retry.

        `written`: the lengths of the run's files before this start, if earlier lines are to be skipped. `only_logs`:
        the workers' output without events; `tail_bytes`: of each file's lines before this call, the last ones only.
        """
        offsets = dict(written or {})
        is_silent = False
        while True:
            try:
                chunks, described = self.read_on(run, offsets, only_logs=only_logs, tail_bytes=tail_bytes)
            except HostSilentError as error:
                if not is_silent:
                    when = "later" if isinstance(error, HostInTroubleError) else "when it does"
                    when_silent(f"{error.args[0]}; this display goes on {when}")
                is_silent = True
                time.sleep(_SILENCE_S)
                self._look_for_host()
                continue
            is_silent, tail_bytes = False, None
            offsets |= {chunk["file"]: chunk["next_offset"] for chunk in chunks}
            news = News([(chunk["file"], chunk["text"]) for chunk in chunks], described)
            yield news
            if news.is_over:
                return

    def _look_for_host(self) -> None:
        """Ask another machine from now on if this machine's agent has found that it is the host now."""
        membership = self._home.membership()
        if membership is not None and membership != self.membership:
            self._client.close()
            self.membership, self._client = membership, HostClient.of(membership, timeout_s=_ANSWER_S)

    def read_on(
        self, run: str, offsets: dict[str, int], *, only_logs: bool = False, tail_bytes: int | None = None
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Long poll for lines of a run's files beyond the offsets; also returns the host's description of the run."""
        request = NewsRequest(offsets=offsets, only_logs=only_logs, tail_bytes=tail_bytes)
        answer = self._client.ask("POST", f"/runs/{run}/news", request)
        return list(answer["chunks"]), dict(answer["run"])

    def account(self, run: str) -> Account | None:
        """Where the run's time went, from the events of all its machines."""
        told = self._client.ask("GET", f"/runs/{run}/account")["account"]
        return None if told is None else account_from_data(told)

    def stop(self, run: str) -> dict[str, Any]:
        return dict(self._client.ask("POST", f"/runs/{run}/stop"))

    def only_run(self) -> str:
        """The name of the only run in progress; raises if there is none, or more than one."""
        names = [run["run"] for run in self.status()["runs"] if run["state"] not in ENDED]
        if len(names) == 1:
            return str(names[0])
        if not names:
            raise MeetingError("nothing runs", fix="see what has run: potluck status --json")
        raise MeetingError(f"several runs are on: {', '.join(names)}", fix=f"name one: potluck stop {names[0]}")

    def find_run(self, name: str | None) -> dict[str, Any]:
        """The host's description of the named run, else of the run in progress that started last, else of the newest.

        Raises if there is no such run, or no run at all.
        """
        if name is not None:
            return dict(self._client.ask("GET", f"/runs/{check_run_name(name)}"))
        runs = [dict(run) for run in self.status()["runs"]]
        if not runs:
            raise MeetingError(f"{self.membership.host} has no run yet", fix="start one: potluck train")
        return max(runs, key=lambda run: (run["state"] not in ENDED, float(run["started_at"])))

    def status(self) -> dict[str, Any]:
        return dict(self._client.ask("GET", "/status"))

    def hand_over(self, machine: str) -> None:
        """Make another machine the host."""
        with HostClient.of(self.membership, timeout_s=_START_S) as client:
            client.ask("POST", f"/handover/{machine}")

    def leave(self, machine: str) -> str:
        """Ask a machine to leave; a warning of the host, if it has one."""
        return str(self._client.ask("POST", f"/machines/{machine}/leave").get("warning", ""))
