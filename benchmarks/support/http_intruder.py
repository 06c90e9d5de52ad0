"""What somebody tries on a host's HTTPS service; each verb prints lines of JSON.

    python -m benchmarks.support.http_intruder bodies --seconds 6 10.77.0.1:29500
    python -m benchmarks.support.http_intruder idle --seconds 6 10.77.0.1:29500
    python -m benchmarks.support.http_intruder wrong 10.77.0.1:29500
    python -m benchmarks.support.http_intruder version --seconds 6 10.77.0.1:29500
    python -m benchmarks.support.http_intruder ask --home HOME POST /runs/calm/stop

`version` is no attack: it measures how long an honest stranger waits for the host's version, on a new connection each
time. `ask` speaks as a machine that has joined, by the credential in its home.
"""

import argparse
import json
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from potluck.core.errors import MeetingError
from potluck.meeting.client.client import HostClient
from potluck.meeting.home import Home

NUM_SENDERS, NUM_IDLE, NUM_WRONG = 16, 1400, 15
_BODY = b'{"workers":[' + b'{"run":"a","worker":1,"state":"running","message":"x"},' * 76_000
_TIMEOUT_S = 8.0
_PAUSE_S = 0.1


def main() -> None:
    """One verb."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    for name, verb in (
        ("bodies", send_bodies),
        ("idle", stay_idle),
        ("version", ask_version),
        ("wrong", answer_wrongly),
    ):
        one = verbs.add_parser(name)
        one.add_argument("--seconds", type=float, default=6.0)
        one.add_argument("host")
        one.set_defaults(do=lambda o, verb=verb: verb(_place(o.host), o.seconds))
    one = verbs.add_parser("ask")
    one.add_argument("--home", type=Path, required=True)
    one.add_argument("--body", type=Path, help="a file with the bytes to send")
    one.add_argument("method")
    one.add_argument("path")
    one.set_defaults(do=lambda o: ask(o.home, o.method, o.path, b"" if o.body is None else o.body.read_bytes()))
    options = parser.parse_args()
    print(json.dumps(options.do(options)), flush=True)


def send_bodies(host: tuple[str, int], seconds: float) -> dict[str, object]:
    """4 MB of JSON without a credential, on sixteen connections, again and again."""
    head = b"POST /report HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        _BODY
    )
    answers: list[bytes] = []
    deadline = time.monotonic() + seconds

    def send() -> None:
        while time.monotonic() < deadline:
            with suppress(OSError), _dial(host) as connection:
                with suppress(OSError):
                    connection.sendall(head + _BODY)
                answers.append(connection.recv(12))

    threads = [threading.Thread(target=send) for _ in range(NUM_SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"answers": sorted({one.decode(errors="replace") for one in answers}), "requests": len(answers)}


def stay_idle(host: tuple[str, int], seconds: float) -> dict[str, object]:
    """Connections that say nothing: most before TLS, some after it."""
    with ExitStack() as stack:
        held = 0
        for number in range(NUM_IDLE):
            with suppress(OSError):
                if number % 10 == 0:
                    stack.enter_context(_dial(host))
                else:
                    stack.enter_context(socket.create_connection(host, timeout=_TIMEOUT_S))
                held += 1
        time.sleep(seconds)
    return {"connections": held}


def answer_wrongly(host: tuple[str, int], _: float) -> dict[str, object]:
    """Wrong credentials, more than anybody may show in a minute."""
    statuses = []
    for _number in range(NUM_WRONG):
        with _dial(host) as connection:
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer lily:wrong\r\n\r\n")
            statuses.append(connection.recv(12).decode().rpartition(" ")[2])
    return {"statuses": statuses}


def ask_version(host: tuple[str, int], seconds: float) -> dict[str, object]:
    """How long the host's version takes, from the first packet to the answer."""
    times = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began = time.monotonic()
        try:
            with _dial(host) as connection:
                connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                is_right = connection.recv(12) == b"HTTP/1.1 200"
        except OSError:
            is_right = False
        times.append(time.monotonic() - began if is_right else _TIMEOUT_S)
        time.sleep(_PAUSE_S)
    times.sort()
    return {
        "asked": len(times),
        "median_s": round(times[len(times) // 2], 3),
        "longest_s": round(times[-1], 3),
        "unanswered": sum(one >= _TIMEOUT_S for one in times),
    }


def ask(home: Path, method: str, path: str, body: bytes) -> dict[str, object]:
    """One question in a joined machine's name: the answer, or the refusal."""
    membership = Home(home).membership()
    assert membership is not None
    with HostClient.of(membership) as client:
        try:
            return {"answer": client.send(method, path, body).decode(errors="replace")}
        except MeetingError as error:
            return {"refused": error.args[0], "fix": error.fix}


def _dial(host: tuple[str, int]) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    raw = socket.create_connection(host, timeout=_TIMEOUT_S)
    try:
        return context.wrap_socket(raw)
    except BaseException:
        raw.close()
        raise


def _place(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return address, int(port)


if __name__ == "__main__":
    main()
