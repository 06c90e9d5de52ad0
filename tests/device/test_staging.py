"""Gradients through pinned host memory: every wait is needed, and the copies run beside backward."""

from statistics import median

from tests.device.crew import train

SUM_TWICE = """
import ctypes
import torch, standin_device
from potluck.engine.group import staging

def doubled(tensor, is_last):
    done = torch.futures.Future()
    done.set_result(tensor.mul_(2))
    return done

def sums(change):
    standin_device.library().standin_set_copy_rate(ctypes.c_double(4e6))
    own = staging.HostStaging(torch.device("standin:1"), doubled)
    change(own)
    found = []
    for number in range(1, 4):
        gradient = torch.zeros(50_000, device="standin:1")
        # A device computes later, in the order of its stream: here slow copies stand for backward.
        torch.zeros(200_000, device="standin:1").copy_(torch.ones(200_000).pin_memory(), non_blocking=True)
        gradient.copy_(torch.full((50_000,), float(number)).pin_memory(), non_blocking=True)
        own.sum(gradient, is_last=True).wait()
        found.append(gradient.unique().tolist())
    return found
"""


def test_staging_waits_for_backward_for_the_copy_and_for_the_way_back(python):
    """Without any one of its three waits, staging computes something else."""
    python(f"""{SUM_TWICE}
RIGHT = [[2.0], [4.0], [6.0]]
assert sums(lambda own: None) == RIGHT

class NeverWaits:
    def __init__(self, stream): self._stream = stream
    def __getattr__(self, name): return getattr(self._stream, name)
    def wait_event(self, event): pass

def forget_backward(own): own._stream = NeverWaits(own._stream)
assert sums(forget_backward) != RIGHT

class NoEvent:
    def query(self): return True

def forget_copy(own):
    exchange = own._exchange
    own._exchange = lambda tensor, host, copied, done, is_last: exchange(tensor, host, NoEvent(), done, is_last=is_last)
assert sums(forget_copy) != RIGHT

def forget_way_back(own):
    def copy_back(tensor, host, done, summed):
        with own._current():
            tensor.copy_(summed.value(), non_blocking=True)
        done.set_result(tensor)
    own._copy_back = copy_back
assert sums(forget_way_back) != RIGHT
""")


def test_an_error_in_the_exchange_is_raised_where_the_sum_is_waited_for(python):
    python(f"""{SUM_TWICE}
def refused(tensor, is_last): raise ValueError("no exchange")
def refused_later(tensor, is_last): return doubled(tensor, is_last).then(lambda done: refused(tensor, is_last))
for failing in (refused, refused_later):
    own = staging.HostStaging(torch.device("standin:0"), failing)
    try:
        own.sum(torch.ones(3, device="standin:0"), is_last=True).wait()
    except (ValueError, RuntimeError) as error:
        assert "no exchange" in str(error)
    else:
        raise AssertionError("no error")
""")


def test_copies_and_exchange_run_beside_backward(tmp_path, on_device):
    """A step is shorter than compute, copies and exchange together.

    In every second step of this run backward waits for each bucket, so that the three follow each other: 6 layers of
    30 ms, 6 MB to the host and back at 100 MB/s, and 6 all-reduces.
    """
    code = "import sys; from tests.device.slow_backward import work; work(sys.argv[1])"
    rate = {"STANDIN_COPY_BYTES_PER_S": "1e8"}
    for found in train(tmp_path, on_device | rate, ("standin:0", "standin:1"), {}, code=code):
        beside_s, after_s = median(found["beside"]), median(found["after"])
        print(f"beside backward {beside_s:.3f} s, one after the other {after_s:.3f} s")
        assert beside_s < 0.85 * after_s
