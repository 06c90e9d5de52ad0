"""Commands that install Python packages into the environment that this process runs in, for users to type."""

import importlib.util
import re
import sys
from importlib import metadata

from potluck.core.shell_words import quote


def pip_install(*requirements: str) -> str:
    """The command that installs these packages here: with pip, or with uv where the environment has no pip."""
    words = " ".join(quote(one) for one in requirements)
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {quote(sys.executable)} {words}"
    return f"{quote(sys.executable)} -m pip install {words}"


def install_extra(extra: str) -> str:
    """The command that adds one of Potluck's extras, such as `dashboard`, to this environment.

    It names the extra's packages and not Potluck: that works wherever Potluck came from, a host's wheel, a clone or an
    index, and changes nothing of Potluck itself.
    """
    try:
        requires = metadata.requires("potluck") or []
    except metadata.PackageNotFoundError:
        return f"in Potluck's folder: {pip_install(f'.[{extra}]')}"
    wanted = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    return pip_install(*(one.partition(";")[0].strip() for one in requires if wanted.search(one)))
