"""Programs with torch on a lab machine without the seconds of its import: a process that has it forks for each.

python tests/lab/warm.py serve SOCKET               on the machine, once
python tests/lab/warm.py run SOCKET SCRIPT ARG ...  as often as wanted: as `python SCRIPT ARG ...`, with this
                                                    process's variables, folder and output
"""

import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path


def serve(path: str) -> None:
    """Import torch, then fork a process for each that asks."""
    import torch._dynamo  # noqa: F401  an optimizer imports it when it is made

    import potluck.cli.doctor
    import potluck.workloads.trainer  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        print("warm", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                if os.fork() == 0:
                    server.close()
                    _attend(connection)


def run(path: str, arguments: list[str]) -> int:
    """Ask for a process, and end as it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        order = {"arguments": arguments, "variables": dict(os.environ), "folder": str(Path.cwd())}
        raw = json.dumps(order).encode()
        socket.send_fds(connection, [len(raw).to_bytes(4, "big")], [1])
        connection.sendall(raw)
        answer = connection.recv(4)
    return int.from_bytes(answer, "big", signed=True)


def _attend(connection: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    size, (output,), _, _ = socket.recv_fds(connection, 4, 1)
    raw = b""
    while len(raw) < int.from_bytes(size, "big"):
        raw += connection.recv(1 << 16)
    worker = os.fork()
    if worker == 0:
        os._exit(_work(json.loads(raw), output))
    with suppress(OSError):  # both sides do it, so that it is done
        os.setpgid(worker, worker)
    while True:
        # Who asked has gone: a test has given up, or its machine is being taken down.
        if select.select([connection], [], [], 0.02)[0]:
            os.killpg(worker, signal.SIGKILL)
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            break
    with suppress(OSError):  # data loaders of its own go with it
        os.killpg(worker, signal.SIGKILL)
    with suppress(OSError):
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def _work(order: dict, output: int) -> int:
    os.setpgid(0, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(order["variables"])
    os.chdir(order["folder"])
    sys.argv = order["arguments"]
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(run(sys.argv[2], sys.argv[3:]))
