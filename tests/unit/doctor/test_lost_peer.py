"""A worker whose peer has gone tells of an effect; everything else may be the cause."""

import pytest

from potluck.doctor.lost_peer import tells_of_lost_peer

EFFECTS = [
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4242.",
    "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:41155: Connection reset by peer. This is typically ...",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed. Did the remote ...",
    "ended by SIGABRT\nterminate called after throwing an instance of 'gloo::IoException'\n  what():  [pair.cc] ...",
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL 2.21",
]
CAUSES = [
    "ValueError: the labels are missing",
    "ended by SIGKILL",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "Connection reset by peer\n" + "".join(f"  line {number}\n" for number in range(10)) + "KeyError: 'loss'",
    "",
]


@pytest.mark.parametrize("message", EFFECTS)
def test_effects(message):
    assert tells_of_lost_peer(message)


@pytest.mark.parametrize("message", CAUSES)
def test_causes(message):
    assert not tells_of_lost_peer(message)
