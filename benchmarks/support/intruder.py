"""What somebody on the network tries, from a machine of their own; each verb prints lines of JSON.

    python -m benchmarks.support.intruder scan 10.77.0.1 10.77.0.2
    python -m benchmarks.support.intruder listeners
    python -m benchmarks.support.intruder knock --identity DIR --run first --ports 29510,41200 10.77.0.1:29500
    python -m benchmarks.support.intruder replay recorded.bin 10.77.0.1:29500
    python -m benchmarks.support.intruder flood --seconds 10 10.77.0.1:29500

`scan` and `listeners` go on until they are killed.
"""

import argparse
import errno
import json
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from potluck.gates.bridge import WELCOME
from potluck.gates.entrance import GREETING
from potluck.gates.messages import Control, Open

LAST_PORT = 65535
_AT_ONCE = 2000
_CONNECT_S = 1.0
_ANSWER_S = 8.0
_LOOK_S = 0.05
_LISTENING = "0A"
_DRIBBLE_S = 0.4
_NUM_IDLE = 150


def main() -> None:
    """One verb."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("scan")
    one.add_argument("hosts", nargs="+")
    one.set_defaults(do=lambda o: repeat(lambda: scan(o.hosts)))
    one = verbs.add_parser("listeners")
    one.set_defaults(do=lambda _: repeat(watch_listeners))
    one = verbs.add_parser("knock")
    one.add_argument(
        "--identity", type=Path, help="a folder with certificate.pem and key.pem; without it no certificate"
    )
    one.add_argument("--run", default="")
    one.add_argument("--ports", default="", help="ports of the run to ask for")
    one.add_argument("--to", default="", help="a machine to be relayed to")
    one.add_argument("--origin", default="", help="a machine in whose name to speak")
    one.add_argument("gates", nargs="+")
    one.set_defaults(do=knock_at_all)
    one = verbs.add_parser("replay")
    one.add_argument("recorded", type=Path)
    one.add_argument("gates", nargs="+")
    one.set_defaults(do=lambda o: tell_all(replay(end(gate), o.recorded.read_bytes()) for gate in o.gates))
    one = verbs.add_parser("flood")
    one.add_argument("--seconds", type=float, default=10.0)
    one.add_argument("gates", nargs="+")
    one.set_defaults(do=lambda o: tell_all(flood(end(gate), o.seconds) for gate in o.gates))
    options = parser.parse_args()
    options.do(options)


def tell(found: object) -> None:
    """One line of JSON."""
    print(json.dumps(found), flush=True)


def tell_all(found: Iterable[object]) -> None:
    """One line of JSON each, as soon as it is found."""
    for one in found:
        tell(one)


def end(text: str) -> tuple[str, int]:
    """The address and port of HOST:PORT."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def repeat(look: Callable[[], object]) -> None:
    """Look again and again, until killed."""
    while True:
        began = time.time()
        found = look()
        tell({"began": began, "ended": time.time(), "found": found})


def scan(hosts: Iterable[str]) -> list[list[object]]:
    """Every port of these machines that takes a connection."""
    wanted = ((host, port) for port in range(1, LAST_PORT + 1) for host in hosts)
    found: list[list[object]] = []
    poll = select.epoll()
    trying: dict[int, tuple[socket.socket, tuple[str, int]]] = {}
    deadline = 0.0
    exhausted = False
    while trying or not exhausted:
        while len(trying) < _AT_ONCE and not exhausted:
            place = next(wanted, None)
            if place is None:
                exhausted = True
                break
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            code = connection.connect_ex(place)
            if code == 0:
                found.append(list(place))
            if code == errno.EINPROGRESS:
                poll.register(connection, select.EPOLLOUT)
                trying[connection.fileno()] = (connection, place)
                deadline = time.monotonic() + _CONNECT_S
            else:
                connection.close()
        for number, _ in poll.poll(0.1, _AT_ONCE):
            connection, place = trying.pop(number)
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                found.append(list(place))
            poll.unregister(number)
            connection.close()
        if time.monotonic() > deadline:  # what is left does not answer
            for number, (connection, _) in trying.items():
                poll.unregister(number)
                connection.close()
            trying.clear()
    return found


def watch_listeners() -> list[str]:
    """Ports of this machine that listen on other addresses than loopback's, over some looks."""
    found: set[str] = set()
    for _ in range(20):
        for table in ("tcp", "tcp6"):
            with suppress(OSError):
                for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    place, _, port = fields[1].partition(":")
                    address = socket.inet_ntoa(struct.pack("=I", int(place[-8:], 16)))
                    if fields[3] == _LISTENING and not address.startswith("127."):
                        found.add(f"{table} {address} {int(port, 16)}")
        time.sleep(_LOOK_S)
    return sorted(found)


def knock_at_all(options: argparse.Namespace) -> None:
    """Show a certificate at every gate, and ask for ports of a run."""
    ports: list[int | None] = [int(port) for port in options.ports.split(",") if port]
    for gate in options.gates:
        for port in ports or [None]:
            message: msgspec.Struct = Control(place="elsewhere")
            if port is not None:
                message = Open(run=options.run, port=port, to=options.to, origin=options.origin)
            tell({"gate": gate, "port": port, **knock(end(gate), options.identity, message)})


def knock(gate: tuple[str, int], identity: Path | None, message: msgspec.Struct) -> dict[str, object]:
    """Whether a gate answers the message of somebody with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if identity is not None:
        context.load_cert_chain(identity / "certificate.pem", identity / "key.pem")
    try:
        with socket.create_connection(gate, timeout=_ANSWER_S) as raw:
            raw.sendall(GREETING)
            with context.wrap_socket(raw) as tls:
                content = msgspec.json.encode(message)
                tls.sendall(len(content).to_bytes(4, "big") + content)
                answer = tls.recv(1024)
    except OSError as error:
        return {"is_in": False, "told": type(error).__name__}
    is_welcome = answer[:1] == WELCOME if isinstance(message, Open) else bool(answer)
    return {"is_in": is_welcome, "told": answer[:20].hex()}


def replay(gate: tuple[str, int], recorded: bytes) -> dict[str, object]:
    """Send bytes that a member has sent before; whether the gate keeps talking."""
    received = b""
    began = time.monotonic()
    try:
        with socket.create_connection(gate, timeout=_ANSWER_S) as raw:
            raw.sendall(recorded)
            while piece := raw.recv(1 << 16):
                received += piece
    except TimeoutError:
        return {"is_in": True, "told": "the connection stays open"}
    except OSError:
        pass
    return {"is_in": False, "told": f"{len(received)} bytes, closed after {time.monotonic() - began:.1f} s"}


def flood(gate: tuple[str, int], seconds: float) -> dict[str, object]:
    """Garbage, handshakes that go on for ever, and connections that say nothing; how long each is kept."""
    deadline = time.monotonic() + seconds
    kept: list[float] = []
    threads = [
        threading.Thread(target=_hold, args=(gate, deadline, how, kept))
        for how in ("silent", "dribbles", "garbage", "greets")
        for _ in range(_NUM_IDLE // 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"connections": len(kept), "longest_s": round(max(kept, default=0.0), 2)}


def _hold(gate: tuple[str, int], deadline: float, how: str, kept: list[float]) -> None:
    while time.monotonic() < deadline:
        began = time.monotonic()
        with suppress(OSError), socket.create_connection(gate, timeout=_ANSWER_S) as raw:
            if how == "garbage":
                raw.sendall(os.urandom(4096))
            elif how == "greets":
                raw.sendall(GREETING + os.urandom(64))
            elif how == "dribbles":
                for byte in GREETING + b"\x16\x03\x01\x02\x00\x01\x00":
                    raw.sendall(bytes([byte]))
                    time.sleep(_DRIBBLE_S)
            raw.recv(1 << 16)
        kept.append(time.monotonic() - began)
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
