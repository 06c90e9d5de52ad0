"""Runs Streamlit's server in this process, and prints one line: the address, once the port answers.

`python -m potluck.dashboard.server ADDRESS PORT RUNS_DIR`; Streamlit's banner is not shown.
"""

import http.client
import os
import sys
import threading
import time
from typing import TextIO

from potluck.dashboard.launching import APP, streamlit_options

_LOOK_EVERY_S = 0.1
_HEALTH = "/_stcore/health"
_ANYWHERE = ("0.0.0.0", "::")  # noqa: S104  shown, not bound


def shown_address(address: str, port: int) -> str:
    """The URL to type into a browser on this machine."""
    host = "localhost" if address in _ANYWHERE else address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def tell_when_open(address: str, port: int, output: TextIO) -> None:
    """Wait until the server answers, and print its URL."""
    while not _answers("localhost" if address in _ANYWHERE else address, port):
        time.sleep(_LOOK_EVERY_S)
    output.write(f"the dashboard is at {shown_address(address, port)}\n")
    output.flush()


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    try:
        connection.request("GET", _HEALTH)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> None:
    """Serve until a signal comes."""
    from streamlit.web.cli import main as streamlit  # noqa: PLC0415  heavy

    address, port, runs_dir = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    output = os.fdopen(os.dup(1), "w")
    threading.Thread(target=tell_when_open, args=[address, port, output], daemon=True).start()
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  Streamlit's banner; what goes wrong is on stderr
    sys.argv = ["streamlit", "run", str(APP), *streamlit_options(address, port), "--", runs_dir]
    streamlit()


if __name__ == "__main__":
    main()
