"""Texts of the wild that must be known, and logs that must not be."""

import pytest

from potluck.doctor.checks.catalogue import CLUSTER_CHECKS, MACHINE_CHECKS
from potluck.doctor.explain import explain
from potluck.doctor.known_errors import KNOWN_ERRORS
from potluck.doctor.known_in_potluck import KNOWN_IN_POTLUCK
from potluck.doctor.known_in_scripts import KNOWN_IN_SCRIPTS

TEXTS = [
    ("hostname-loopback", "RuntimeError: [enforce fail] connect [127.0.1.1]:48761: Connection refused"),
    (
        "hostname-loopback",
        "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:144] no error, "
        "remote=[127.0.0.1]:30512",
    ),
    ("name-unresolvable", "socket.gaierror: [Errno -3] Temporary failure in name resolution"),
    (
        "name-unresolvable",
        "[W socket.cpp:436] The IPv6 network addresses of (lily, 29500) cannot be retrieved "
        "(gai error: -2 - Name or service not known).",
    ),
    (
        "ifname-invalid",
        "RuntimeError: [../gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ^lo",
    ),
    ("ifname-invalid", "Unable to find address for: eth0"),
    ("family-mixed", "[../gloo/transport/tcp/pair.cc:207] ss1.ss_family == ss2.ss_family. 2 vs 10"),
    ("nccl-ifname", "oak:7:7 [0] NCCL WARN Bootstrap : no socket interface found"),
    ("virtual-interface", "oak:7:7 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"),
    ("virtual-interface", "NCCL INFO NET/Socket : Using [0]br-1a2b3c4d5e6f:172.18.0.1<0>"),
    ("container-bridge", "NCCL WARN Connect to 172.17.0.2<46613> failed : Connection refused"),
    (
        "no-route",
        "[W socket.cpp:558] The client socket has failed to connect to [lily]:29500 (errno: 113 - No route to host).",
    ),
    ("wsl-nat", "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection has failed."),
    ("wsl-mirrored-unsupported", "wsl: Mirrored networking mode is not supported, falling back to NAT networking"),
    ("wsl-mirrored-port", "OSError: [WinError 10013] An attempt was made to access a socket"),
    (
        "nobody-hosts",
        "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to "
        "connect to (192.168.1.9, 29500).",
    ),
    ("nobody-hosts", "RuntimeError: The client socket has timed out after 60000ms"),
    ("nccl-aborted", "socketStartConnect: Connect to 192.168.1.5<36871> failed : Software caused connection abort"),
    ("no-nccl", "NCCL: False"),
    ("nvidia-smi-missing", "bash: nvidia-smi: command not found"),
    ("module-missing", "ModuleNotFoundError: No module named 'einops'"),
    (
        "ipv6-noise",
        "[W socket.cpp:663] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family "
        "not supported by protocol).",
    ),
    ("windows-native", "RuntimeError: use_libuv was requested but PyTorch was build without libuv support"),
    ("windows-native", "RuntimeError: makeDeviceForHostname(): unsupported gloo device"),
    (
        "docker-desktop-hosts",
        "The client socket has failed to connect to [PC]:29500 (system error: 10049 - The requested address "
        "is not valid in its context.)",
    ),
    ("docker-desktop-hosts", "[W socket.cpp] failed to connect to [kubernetes.docker.internal]:29500"),
    ("no-nccl", "RuntimeError: Distributed package doesn't have NCCL built in"),
    ("cuda-missing", "CUDA: False"),
    (
        "port-in-use",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    (
        "missing-machines",
        "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/3 clients joined.",
    ),
    (
        "missing-machines",
        "Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=2, worker_count=1, timeout=0:30:00)",
    ),
    (
        "nccl-mismatch",
        "NCCL WARN NET/Socket : peer 10.0.0.2 message truncated : receiving 1048576 bytes instead of 65536",
    ),
    ("duplicate-gpu", "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"),
    ("shm-small", "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-3fW1Ub (size 9637888)"),
    (
        "shm-small",
        "RuntimeError: DataLoader worker (pid 88) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory.",
    ),
    (
        "shm-small",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_64_42_0>: No space left on device (28)",
    ),
    ("arch-mismatch", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (
        "collective-mismatch",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4",
    ),
    (
        "model-mismatch",
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 62 params, while rank 0 has "
        "inconsistent 60 params.",
    ),
    (
        "collective-timeout",
        "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for "
        "600123 milliseconds",
    ),
    ("peer-died", "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.77.0.2]:37522"),
    (
        "peer-died",
        "RuntimeError: [gloo/transport/tcp/pair.cc:547] Read error [10.77.0.2]:9116: Connection reset by peer",
    ),
    ("hidden-traceback", "  error_file: <N/A>"),
    (
        "ephemeral-ports",
        "RuntimeError: Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection timed "
        "out, remote=[10.77.0.2]:41234",
    ),
    ("disk-full", "OSError: [Errno 28] No space left on device"),
    ("killed", "traceback : Signal 9 (SIGKILL) received by PID 4711"),
    ("killed", "E failed (exitcode: -9) local_rank: 0 (pid: 4711) of binary: /usr/bin/python"),
    ("native-fault", "exitcode  : -11 (pid: 4711)"),
    ("other-processor", "ended by SIGILL"),
    ("out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
    ("killed", "Killed"),
    ("killed", "train.sh: line 3:  4711 Killed                  python train.py"),
    ("out-of-memory", "CUDA out of memory"),
    ("nvidia-smi-missing", "nvidia-smi: command not found"),
    ("nvidia-smi-missing", "bash: nvidia-smi: command not found"),
    (
        "nccl-system-error",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error "
        "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3",
    ),
    ("nccl-system-error", "NCCL ... unhandled system error"),
    (
        "ephemeral-ports",
        "The client socket has timed out after 10000ms while trying to connect to (10.77.0.3, 41441)",
    ),
    (
        "nobody-hosts",
        "The client socket has timed out after 60000ms while trying to connect to (192.168.1.9, 29500).",
    ),
    ("nobody-hosts", "client socket has timed out after 60000ms ... 29500"),
    # in scripts
    ("module-missing", "ModuleNotFoundError: No module named 'timm'"),
    ("module-missing", "ModuleNotFoundError"),
    (
        "two-devices",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ),
    ("file-handles", "OSError: [Errno 24] Too many open files"),
    ("read-only", "OSError: [Errno 30] Read-only file system: '/readonly/.potluck'"),
    ("no-param-groups", "AttributeError: 'Sequential' object has no attribute 'param_groups'"),
    ("dataset-without-length", "TypeError: object of type 'It' has no len()"),
    ("loader-in-loader", "TypeError: 'DataLoader' object is not subscriptable"),
    ("loader-argument", "TypeError: Run.loader() got an unexpected keyword argument 'batch_size'"),
    ("loss-not-a-mean", "RuntimeError: a Tensor with 64 elements cannot be converted to Scalar"),
    ("optimizer-missing", "TypeError: Run.prepare() missing 1 required positional argument: 'optimizer'"),
    ("prepared-attribute", "AttributeError: 'SharedLoader' object has no attribute 'dataset'"),
    ("prepared-attribute", "TypeError: 'PreparedModel' object is not subscriptable"),
    ("loss-not-a-number", "epoch 2/2  step 30/40  loss not a number  900 samples/s"),
    ("bad-text", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 49: invalid start byte"),
    ("bad-text", "msgspec.DecodeError: JSON is malformed: invalid character (byte 0)"),
    ("recursion", "RecursionError: maximum recursion depth exceeded while calling a Python object"),
    # of Potluck itself
    ("not-a-member", "error: this host does not know this machine"),
    ("versions-apart", "error: lily has torch 2.10.0, rosa has 2.13.0: they do not train together"),
    (
        "parity-check",
        "error: ivy (torch 2.12.1) does not compute what rosa (torch 2.13.0+cpu) computes: parity check, part 3 of 8, "
        "loss in float32: differs by 1.7e-05, at most 1e-05 is allowed",
    ),
    ("host-silent", "error: the host at 10.77.0.2:29500 does not answer"),
    ("host-silent", "rosa does not answer for 12 s; what runs here waits for it"),
    ("host-failed", "no account: the host answers with status 500"),
    ("too-many-answers", "too many wrong answers from 10.77.0.2"),
    ("not-joined", "error: this machine has not joined a host"),
    ("no-script", "error: there is no script --solo"),
    ("no-run", "error: there is no run in /root/experiments to resume"),
    ("other-model", "fern-0 trains another model than rosa-0"),
    ("step-not-applied", "the loop asks for the next batch, but step 1 was never applied"),
    ("no-new-gradient", "optimizer.step was called without a new gradient"),
    ("no-data", "the run has no data yet"),
    (
        "graceful-shutdown",
        "asyncio.exceptions.CancelledError: Task cancelled, timeout graceful shutdown exceeded",
    ),
    ("account-race", "FileNotFoundError: '.../two_opt-1/.account.json.90.tmp' -> '.../account.json'"),
    ("page-not-open", "ERR_CONNECTION_REFUSED"),
    ("plot-failed", "thread '<unnamed>' panicked at vl_convert_rs/src/converter.rs:880"),
    ("cut-request", "h11._util.LocalProtocolError: Can't send data when our state is ERROR"),
]


@pytest.mark.parametrize(("wanted", "text"), TEXTS)
def test_the_text_is_known(wanted, text):
    assert [one.id for one in explain(text)] == [wanted]


def test_every_known_error_has_a_text_here():
    assert {known.id for known in KNOWN_ERRORS} == {wanted for wanted, _ in TEXTS}


# In error texts alone: what no look at a machine can see before it happens.
ONLY_IN_TEXTS = {
    # of launches without a host
    "container-bridge",
    "ephemeral-ports",
    "family-mixed",
    "nccl-aborted",
    "no-route",
    "wsl-mirrored-port",
    "wsl-mirrored-unsupported",
    "wsl-nat",
    # of any launch
    "collective-mismatch",
    "model-mismatch",
    "collective-timeout",
    "peer-died",
    "hidden-traceback",
    "killed",
    "native-fault",
    "other-processor",
    "out-of-memory",
    "nccl-system-error",
    "nvidia-smi-missing",
    *(known.id for known in (*KNOWN_IN_SCRIPTS, *KNOWN_IN_POTLUCK)),
}


def test_other_ids_are_those_of_checks():
    assert {known.id for known in KNOWN_ERRORS} - set(MACHINE_CHECKS) - set(CLUSTER_CHECKS) == ONLY_IN_TEXTS


def test_a_worker_zero_that_was_not_started_is_named_as_a_cause():
    (found,) = explain("The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500)")
    assert "MASTER_ADDR" in found.cause
    assert "RANK=0" in found.cause
    assert "firewall" in found.cause


def test_a_missing_package_is_named():
    (found,) = explain("ModuleNotFoundError: No module named 'timm'")
    assert "pip install timm" in found.fix


def test_machines_are_named():
    (found,) = explain("Connection closed by peer [10.77.0.2]:37522", {"10.77.0.2": "lily"})
    assert found.cause.startswith("lily left")
    assert "10.77.0.2 (lily)" in found.line


def test_the_number_of_workers_that_came_is_told():
    (found,) = explain("store_based_barrier_key:1 (world_size=4, worker_count=3")
    assert found.cause.startswith("3 of 4 workers came")


def test_each_cause_is_told_once_at_its_first_line():
    found = explain("a line\nEADDRINUSE\nanother\nEADDRINUSE\nNo space left on device\n")
    assert [(one.id, one.line_number) for one in found] == [("port-in-use", 2), ("disk-full", 5)]


def test_the_error_that_torchrun_hides_is_shown():
    log = """
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3, in <module>
[rank1]:     loss = model(x)
[rank1]: ValueError: expected 3 channels
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  error_file: <N/A>
"""
    (found,) = explain(log)
    assert "ValueError: expected 3 channels" in found.line


def test_two_hundred_lines_of_other_logs_are_not_known():
    assert len(UNRELATED.splitlines()) >= 200
    assert explain(UNRELATED) == []


def _unrelated():
    """What training, installing and system logs print on a good day, and errors that are somebody else's."""
    lines = [f"epoch {n // 10 + 1}/5  step {n}/50  loss {2.3 - n / 40:.4f}  {900 + n} samples/s" for n in range(50)]
    lines += [f"Collecting package-{n}\n  Downloading package_{n}-1.{n}.0-py3-none-any.whl ({n} kB)" for n in range(20)]
    lines += [
        f"Nov 15 02:{n:02}:01 oak systemd[1]: Started session-{n}.scope - Session {n} of User." for n in range(30)
    ]
    lines += [f"oak:7:7 [0] NCCL INFO Channel {n:02}/16 : 0 1" for n in range(16)]
    lines += [f'INFO: 192.168.1.{n}:5{n:04} - "GET /health HTTP/1.1" 200 OK' for n in range(20)]
    lines += [f"[{n}.000000] usb 1-{n}: new high-speed USB device number {n} using xhci_hcd" for n in range(1, 20)]
    lines += [f"test_part_{n} PASSED [{n:3} %]" for n in range(30)]
    return "\n".join([*lines, *_OTHER_ERRORS])


_OTHER_ERRORS = """
Traceback (most recent call last):
  File "train.py", line 12, in <module>
    loss = criterion(output, target)
ValueError: Expected input batch_size (32) to match target batch_size (16).
KeyError: 'state_dict'
FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'
UserWarning: The given NumPy array is not writable
RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)
AssertionError
PermissionError: [Errno 13] Permission denied: 'experiments/first'
requests.exceptions.HTTPError: 404 Client Error: Not Found for url
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated.
NCCL INFO Bootstrap : Using eth0:192.168.1.10<0>
NCCL INFO NET/Socket : Using [0]eth0:192.168.1.10<0>
NCCL version 2.27.3+cuda12.8
CUDA: True
ssh: Could not resolve proxy setting
git: 'comit' is not a git command. See 'git --help'.
MemoryError
ZeroDivisionError: float division by zero
KeyboardInterrupt
warning: timeout of 30 s is set for the download
Segmentation fault (core dumped)
the connection was closed by the user
process 17 was killed by the administrator
Killed processes: 0
loss is finite at step 113
nvidia-smi prints a table
time out for lunch
""".strip().splitlines()
UNRELATED = _unrelated()
