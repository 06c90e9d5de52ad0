"""Recognises the error of a worker whose peer has gone: the effect of another worker's end, not the cause."""

import re

_LAST_LINES = 6
_TORCH_ONLY = re.compile(
    r"recvValue(WithTimeout)? failed on|Failed to (recv|send), (got|sent) \d+ bytes|wait timeout after \d+ms, keys|"
    r"client socket has (timed out|failed to connect)|waiting for clients\. \d+/\d+ clients joined|"
    r"Timed out waiting \d+ms for (recv|send|unbound)|gloo::\w*Exception|terminate called .*c10::Dist(Network|Store)|"
    r"Connection closed by peer \[|failed to pass monitoredBarrier|connectFullMesh failed|ncclRemoteError|"
    r"NCCL communicator was aborted|Watchdog caught collective operation timeout",
    re.IGNORECASE,
)
# A script's own download says these too: they count in a line in which torch's networking names itself.
_ANY_NETWORK = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|Socket (closed|Timeout)|Timed out|"
    r"remote process exited or there was a network error",
    re.IGNORECASE,
)
_NAMED_TORCH = re.compile(
    r"\bgloo\b|\b(pair|unbound_buffer)\.cc\b|\bc10d?\b|TCPStore|\bNCCL|Dist(Network|Store|Backend)?Error|ProcessGroup"
)


def tells_of_lost_peer(message: str) -> bool:
    """Whether the last lines of a crash are torch's words for a connection to another worker that has broken."""
    return any(
        _TORCH_ONLY.search(line) or (_ANY_NETWORK.search(line) and _NAMED_TORCH.search(line))
        for line in message.splitlines()[-_LAST_LINES:]
    )
