"""A worker whose peer has gone tells of an effect; everything else may be the cause."""

import pytest

from potluck.doctor.lost_peer import tells_of_lost_peer

EFFECTS = [  # most as torch 2.13 printed them after one of two processes had ended
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:4242.",
    "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:41155: Connection reset by peer. This is typically ...",
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
    "5000ms for recv operation to complete",
    "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms\n Original exception: \n"
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:5539: Connection "
    "reset by peer. This is typically caused by a remote worker hanging or bugs in the application.",
    "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
    "server shutdown or crash?",
    "torch.distributed.DistNetworkError: Broken pipe",
    "torch.distributed.DistNetworkError: The client socket has timed out after 5000ms while trying to connect to "
    "(127.0.0.1, 29999).",
    "torch.distributed.DistStoreError: Timed out after 6 seconds waiting for clients. 1/2 clients joined.",
    "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0",
    "ended by SIGABRT\nterminate called after throwing an instance of 'gloo::IoException'\n  what():  [pair.cc] ...",
    "ended by SIGABRT\nterminate called after throwing an instance of 'c10::DistNetworkError'\n  what():  Broken pipe",
    "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error, NCCL 2.21",
]
CAUSES = [
    "ValueError: the labels are missing",
    "ended by SIGKILL",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "Connection reset by peer\n" + "".join(f"  line {number}\n" for number in range(10)) + "KeyError: 'loss'",
    "",
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "requests.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    "TimeoutError: timed out",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
    "29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
]


@pytest.mark.parametrize("message", EFFECTS)
def test_effects(message):
    assert tells_of_lost_peer(message)


@pytest.mark.parametrize("message", CAUSES)
def test_causes(message):
    assert not tells_of_lost_peer(message)
