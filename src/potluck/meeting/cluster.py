"""The cluster as a command sees it: ask the host for a run, follow it, stop it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from potluck.core.errors import MeetingError
from potluck.meeting.bundle import Bundle
from potluck.meeting.client import HostClient, HostSilentError
from potluck.meeting.home import Home
from potluck.meeting.wire import NewsRequest, RunRequest
from potluck.report.account import Account
from potluck.report.account_file import account_from_data

_START_S = 90.0
_NEWS_S = 15.0
_SILENCE_S = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """What was written since the last look, file by file, and where the run stands."""

    chunks: list[tuple[str, str]]
    run: dict[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether the run has ended and all that is known of it has been read."""
        return self.run["state"] in ("finished", "stopped", "failed") and self.run["is_home"] and not self.chunks


class Cluster:
    """The host that this machine has joined."""

    def __init__(self, home: Home) -> None:
        membership = home.membership()
        if membership is None:
            raise MeetingError(
                "this machine has not joined a host",
                fix="paste the line that potluck host prints on another machine, or start one here: potluck host",
            )
        self._home = home
        self.membership = membership
        self._client = HostClient.of(membership, timeout_s=_START_S)

    def beside(self) -> "Cluster":
        """Another connection to the same host, while this one waits."""
        return Cluster(self._home)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def start(self, request: RunRequest) -> dict[str, Any]:
        """Ask for a run; what the host answers with describes it."""
        return dict(self._client.ask("POST", "/runs", request))

    def send_bundle(self, bundle: Bundle) -> None:
        self._client.send("PUT", f"/bundles/{bundle.hash}", bundle.data)

    def follow(self, run: str, when_silent: Callable[[str], None]) -> Iterator[News]:
        """What happens, as it comes, until everything has come; a silent host is waited for."""
        offsets: dict[str, int] = {}
        is_silent = False
        while True:
            try:
                answer = self._client.ask("POST", f"/runs/{run}/news", NewsRequest(offsets=offsets))
            except HostSilentError as error:
                if not is_silent:
                    when_silent(f"{error.args[0]}; this display goes on when it does")
                is_silent = True
                time.sleep(_SILENCE_S)
                continue
            is_silent = False
            offsets |= {chunk["file"]: chunk["next_offset"] for chunk in answer["chunks"]}
            news = News([(chunk["file"], chunk["text"]) for chunk in answer["chunks"]], answer["run"])
            yield news
            if news.is_over:
                return

    def account(self, run: str) -> Account | None:
        """Where the run's time went, from the events of all its machines."""
        told = self._client.ask("GET", f"/runs/{run}/account")["account"]
        return None if told is None else account_from_data(told)

    def stop(self, run: str) -> dict[str, Any]:
        return dict(self._client.ask("POST", f"/runs/{run}/stop"))

    def only_run(self) -> str:
        """The name of the run that is on, if there is one and no other."""
        names = [run["run"] for run in self.status()["runs"] if run["state"] in ("preparing", "running", "stopping")]
        if len(names) == 1:
            return str(names[0])
        if not names:
            raise MeetingError("nothing runs", fix="see what has run: potluck status --json")
        raise MeetingError(f"several runs are on: {', '.join(names)}", fix=f"name one: potluck stop {names[0]}")

    def status(self) -> dict[str, Any]:
        return dict(self._client.ask("GET", "/status"))

    def leave(self, machine: str) -> None:
        self._client.ask("POST", f"/machines/{machine}/leave")
