"""Admission of requests to the host's service, by their headers alone: the body of a refused request is never read."""

import asyncio
from typing import Protocol

from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from potluck.core.disk import as_disk_error
from potluck.core.errors import PotluckError
from potluck.core.version import FROM_THE_HOST, __version__
from potluck.meeting.host.admission import Door, NotProvenError, ParityWantedError, TooManyTriesError
from potluck.meeting.host.reign import NotConfirmedError
from potluck.meeting.host.roster import MachineRoster
from potluck.meeting.host.troubles import Troubles
from potluck.meeting.transfer.bundle import DEFAULT_LIMIT_BYTES
from potluck.meeting.transfer.shipping import MAX_DELIVERY_BYTES
from potluck.meeting.wire import PARITY_WANTED

CALLER = "potluck.caller"
"""Key of an ASGI scope: the machine that sent the request, or ONLOOKER for a program with the metrics key."""
ONLOOKER = ""
MOST_JSON_BYTES = 64 << 10
MOST_TOLD_BYTES = 2 << 20
"""Limit for reports, for requests for news, and for questions and answers of visits."""
STRANGERS_BODY_S = 5.0
MEMBERS_BODY_S = 30.0
_SLOWEST_BYTES_PER_S = 12_500
_OPEN_TO_ALL = ("/version", "/join")
_STATUSES = {NotConfirmedError: 503, NotProvenError: 401, TooManyTriesError: 429, ParityWantedError: PARITY_WANTED}
OTHER_VERSION = f"install the host's version, {__version__}: {FROM_THE_HOST}"


class Hall(Protocol):
    """The part of the coordinator that Admission needs."""

    roster: MachineRoster
    troubles: Troubles


class Admission:
    """ASGI middleware: checks the credential, limits size and time of the body, turns exceptions into answers."""

    def __init__(self, app: ASGIApp, *, door: Door, coordinator: Hall) -> None:
        self._app = app
        self._door = door
        self._coordinator = coordinator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        try:
            self._let_in(scope, headers)
        except PotluckError as error:
            await refuse(error, is_last=True)(scope, receive, send)
            return
        length, most = headers.get(b"content-length", b"0"), most_bytes(scope["path"])
        if b"transfer-encoding" in headers or not length.isdigit() or int(length) > most:
            problem = {"error": f"a body of at most {most} bytes is taken", "fix": OTHER_VERSION}
            await JSONResponse(problem, 413, {"connection": "close"})(scope, receive, send)
            return
        is_member = CALLER in scope
        seconds = MEMBERS_BODY_S + int(length) / _SLOWEST_BYTES_PER_S if is_member else STRANGERS_BODY_S
        await self._serve(scope, _Exchange(receive, send, seconds, has_body=int(length) == 0))

    def _let_in(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Note the caller in the scope, or raise. Wrong credentials from the same address never block a valid one."""
        if scope["path"] in _OPEN_TO_ALL:
            return
        shown = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ")
        machine, _, credential = shown.partition(":")
        if self._coordinator.roster.knows(machine, credential):
            scope[CALLER] = machine
        elif scope["path"] == "/metrics" and self._door.may_read_metrics(shown):
            scope[CALLER] = ONLOOKER
        else:
            raise self._door.failed(
                (scope.get("client") or ("",))[0],
                NotProvenError(
                    "this host does not know this machine", fix="join with the line that potluck host prints"
                ),
            )

    async def _serve(self, scope: Scope, exchange: "_Exchange") -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            if exchange.is_late:
                problem = {"error": "the request's body did not come in time", "fix": "try again"}
                await JSONResponse(problem, 408)(scope, exchange.receive, exchange.send)
        except Exception as error:
            if exchange.has_answered:
                raise
            self._coordinator.troubles.note(f"a request for {scope['path']}", error)
            await _own_trouble(error)(scope, exchange.receive, exchange.send)


class _Exchange:
    """One request: its body has a deadline, and an answer before the body is complete closes the connection."""

    def __init__(self, receive: Receive, send: Send, seconds: float, *, has_body: bool) -> None:
        self._receive = receive
        self._send = send
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._has_body = has_body
        self.is_late = False
        self.has_answered = False

    async def receive(self) -> Message:
        if self._has_body:
            return await self._receive()
        try:
            left_s = self._deadline - asyncio.get_running_loop().time()
            message = await asyncio.wait_for(self._receive(), max(0.0, left_s))
        except asyncio.TimeoutError:
            self.is_late = True
            return {"type": "http.disconnect"}
        self._has_body = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_answered = True
            if self.is_late:
                message = {**message, "status": 408}
            if not self._has_body:
                message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
        await self._send(message)


def most_bytes(path: str) -> int:
    """The largest body that this path accepts."""
    if path.startswith(("/bundles/", "/catalogues/")):
        return DEFAULT_LIMIT_BYTES
    if path == "/states" or (path.startswith("/runs/") and (path.endswith("/files") or "/checkpoints/" in path)):
        return MAX_DELIVERY_BYTES
    if path == "/report" or path.startswith("/visits/") or path.endswith("/news"):
        return MOST_TOLD_BYTES
    return MOST_JSON_BYTES


def _own_trouble(error: Exception) -> JSONResponse:
    """The answer to a failure of the host itself: 507 with a fix if its disk cannot be written, else 500."""
    disk = as_disk_error(error)
    if disk is not None:
        return JSONResponse({"error": f"on the host: {disk.args[0]}", "fix": f"on the host, {disk.fix}"}, 507)
    what = f"the host met a trouble of its own: {type(error).__name__}"
    return JSONResponse({"error": what, "fix": "see what potluck host prints"}, 500)


def refuse(error: PotluckError, *, is_last: bool = False) -> JSONResponse:
    """An error as an answer; `is_last` closes the connection, for a request whose body was not read."""
    status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 400)
    return JSONResponse(
        {"error": error.args[0], "fix": error.fix}, status, {"connection": "close"} if is_last else None
    )
