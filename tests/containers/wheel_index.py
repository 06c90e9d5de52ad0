"""A package index of a folder of wheels, as a mirror at home would be: HTTP for pip and uv, HTTPS for PyTorch's name.

    python -m tests.containers.wheel_index FOLDER ADDRESS CERTIFICATE KEY

uv gets torch from download.pytorch.org, whatever index it is given: in a container, that name leads here.
"""

import re
import ssl
import sys
import threading
import zipfile
from collections import defaultdict
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

HTTP_PORT, HTTPS_PORT = 8080, 443
PYTORCH = "download.pytorch.org"


class WheelIndex(SimpleHTTPRequestHandler):
    """Answers /ANYTHING/PROJECT/ with the project's wheels, and /files/WHEEL and /files/WHEEL.metadata with them."""

    protocol_version = "HTTP/1.1"
    files: dict[str, Path]
    projects: dict[str, list[str]]
    metadata: dict[str, bytes]

    def do_GET(self) -> None:
        path = unquote(self.path.partition("?")[0])
        name = path.rpartition("/")[2]
        if path.startswith("/files/") and name in self.files:
            self._answer(self.files[name])
        elif path.startswith("/files/") and name.endswith(".metadata") and name.removesuffix(".metadata") in self.files:
            self._answer(self.metadata[name.removesuffix(".metadata")])
        elif path.endswith("/") and (project := path.split("/")[-2]) in self.projects:
            links = (
                f'<a href="/files/{quote(file)}" data-core-metadata="true">{file}</a>'
                for file in self.projects[project]
            )
            self._answer(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode(), "text/html")
        else:
            self.send_error(404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, content: bytes | Path, kind: str = "application/octet-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(content.stat().st_size if isinstance(content, Path) else len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if isinstance(content, Path):
            with content.open("rb") as file:
                self.copyfile(file, self.wfile)
        else:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """No log: the test reads the container's."""


def read_metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return archive.read(inside)


def main() -> None:
    folder, address, certificate, key = sys.argv[1:]
    wheels = sorted(Path(folder).glob("*.whl"))
    WheelIndex.files = {wheel.name: wheel for wheel in wheels}
    WheelIndex.metadata = {wheel.name: read_metadata(wheel) for wheel in wheels}
    WheelIndex.projects = defaultdict(list)
    for wheel in wheels:
        project = re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()
        WheelIndex.projects[project].append(wheel.name)
    plain, secure = (ThreadingHTTPServer((address, port), WheelIndex) for port in (HTTP_PORT, HTTPS_PORT))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    print("ready", flush=True)
    plain.serve_forever()


if __name__ == "__main__":
    main()
