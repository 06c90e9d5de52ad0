"""Recognises the error of a worker whose peer has gone: the effect of another worker's end, not the cause."""

import re

_LAST_LINES = 6
_LOST_PEER = re.compile(
    r"Connection (closed|reset|refused)( by peer)?|Broken pipe|Socket (closed|Timeout)|recvValue failed|"
    r"Failed to recv, got \d+ bytes|Connection was likely closed|socket has timed out|socket has failed to connect|"
    r"Timed out waiting \d+ms for (recv|send|unbound)|gloo::IoException|wait timeout after|"
    r"remote process exited or there was a network error|NCCL communicator was aborted",
    re.IGNORECASE,
)


def tells_of_lost_peer(message: str) -> bool:
    """Whether the last lines of a crash are torch's words for a connection to another worker that has broken."""
    return bool(_LOST_PEER.search("\n".join(message.splitlines()[-_LAST_LINES:])))
