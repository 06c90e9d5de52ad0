"""Builds a wheel of the Potluck that runs here, from its installed files: other machines install exactly these."""

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from potluck.core.version import __version__

PACKAGE = "potluck"
_WHEEL = "Wheel-Version: 1.0\nGenerator: potluck {version}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_COPIED = ("METADATA", "entry_points.txt")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's first moment: equal files give equal bytes, whenever the wheel is built
_FILE_MODE = 0o100644 << 16


class NotInstalledError(Exception):
    """Potluck runs here without being installed, so that its dependencies are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel's file name and content."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def build_wheel() -> Wheel:
    """The wheel of the code that runs here, with the metadata that Potluck was installed with."""
    try:
        installed = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise NotInstalledError from None
    info = f"{PACKAGE}-{__version__}.dist-info"
    entries = dict(_code(installed))
    for name, content in _metadata(installed):
        entries[f"{info}/{name}"] = content
    entries[f"{info}/WHEEL"] = _WHEEL.format(version=__version__).encode()
    entries[f"{info}/RECORD"] = _record(entries, f"{info}/RECORD")
    return Wheel(name=f"{PACKAGE}-{__version__}-py3-none-any.whl", content=_zip(entries))


def _code(installed: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """The package's files: those that the installer recorded, or the source tree of an editable installation."""
    folder = Path(__file__).parents[2]
    recorded = [Path(str(file)) for file in installed.files or () if file.parts[0] == PACKAGE]
    is_this_code = Path(str(installed.locate_file(PACKAGE))).resolve() == folder.resolve()  # or a clone on PYTHONPATH
    if recorded and is_this_code:
        files = [folder.parent / file for file in recorded]
    else:
        files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    for file in sorted(files):
        inside = file.relative_to(folder.parent)
        if "__pycache__" not in inside.parts and not any(part.startswith(".") for part in inside.parts):
            yield inside.as_posix(), file.read_bytes()


def _metadata(installed: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """METADATA, the entry points and the licence."""
    for name in _COPIED:
        text = installed.read_text(name)
        if text is None:
            raise NotInstalledError
        if name == "METADATA":  # an editable installation keeps the version that it was made with
            text = re.sub(r"^Version: .*$", f"Version: {__version__}", text, count=1, flags=re.MULTILINE)
        yield name, text.encode()
    licence = installed.read_text("licenses/LICENSE")
    if licence is not None:
        yield "licenses/LICENSE", licence.encode()


def _record(entries: dict[str, bytes], own_name: str) -> bytes:
    lines = []
    for name, content in entries.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()


def _zip(entries: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _FILE_MODE
            archive.writestr(entry, content)
    return packed.getvalue()
