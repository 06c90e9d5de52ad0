"""Resolves host names as programs on this machine would."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from potluck.machine.asking import NoAnswerError, ask
from potluck.machine.facts import Resolved

_HOSTS = Path("C:/Windows/System32/drivers/etc/hosts" if sys.platform == "win32" else "/etc/hosts")
# A name server that does not answer blocks the caller for half a minute, so another process asks, with a timeout.
_QUESTION = """
import json, socket, sys
answers = []
for name in sys.argv[1:]:
    try:
        found = list(dict.fromkeys(a[4][0] for a in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)))
        answers.append([name, found, ""])
    except (OSError, UnicodeError) as error:
        answers.append([name, [], getattr(error, "strerror", None) or str(error)])
print(json.dumps(answers))
"""


def resolve(names: Sequence[str], *, timeout_s: float = 2.0) -> tuple[Resolved, ...]:
    """Look up every name, as programs on this machine would."""
    wanted = list(dict.fromkeys(name for name in names if name))
    try:
        answers = json.loads(ask([sys.executable, "-I", "-S", "-c", _QUESTION, *wanted], timeout_s=timeout_s))
    except NoAnswerError:
        return tuple(Resolved(name=name, error=f"no answer in {timeout_s:g} s") for name in wanted)
    return tuple(Resolved(name=name, addresses=tuple(found), error=error) for name, found, error in answers)


def read_docker_names(text: str | None = None) -> tuple[Resolved, ...]:
    """Names that Docker Desktop wrote into the hosts file: they may point to an address that no interface has."""
    lines = (text if text is not None else _HOSTS.read_text(errors="replace")).splitlines()
    found = []
    for line in lines:
        address, *names = line.partition("#")[0].split() or [""]
        found += [Resolved(name=name, addresses=(address,)) for name in names if name.endswith("docker.internal")]
    return tuple(found)
