"""The variables of NCCL that Potluck sets where the user has set none."""

from collections.abc import Mapping
from pathlib import Path

_CHATTY = ("INFO", "TRACE", "ABORT")
"""Values of NCCL_DEBUG with which NCCL prints tens of lines for every group that forms."""


def nccl_defaults(
    given: Mapping[str, str], *, interface: str, has_infiniband: bool, debug_file: Path
) -> dict[str, str]:
    """The variables to set, without those that the user has set in the environment or in NCCL's files (`given`).

    `interface`: the one that leads to all other machines of the group; empty if there is none, or more than one.
    NCCL_P2P_DISABLE is not among them: NCCL itself finds out whether two cards reach each other (docs/decisions.md).
    """
    found = {}
    if interface:
        found["NCCL_SOCKET_IFNAME"] = f"={interface}"  # without the = it would be a prefix of several names
    if not has_infiniband and "NCCL_NET" not in given and not any(name.startswith("NCCL_IB_") for name in given):
        found["NCCL_IB_DISABLE"] = "1"
    if given.get("NCCL_DEBUG", "").upper() in _CHATTY:
        found["NCCL_DEBUG_FILE"] = str(debug_file).replace("%", "%%")  # NCCL replaces %h and %p
    return {name: value for name, value in found.items() if name not in given}
