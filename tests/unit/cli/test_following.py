"""What is said when a run begins."""

import pytest

from potluck.cli.following import plain_lines

NCCL = (
    "if the script uses NCCL, its gradients go from machine to machine unencrypted; with the backend gloo they stay in "
    "the gates"
)


def placed(**devices):
    numbers = iter(range(100))
    return {
        "workers": {name: [{"number": next(numbers), "device": one} for one in own] for name, own in devices.items()}
    }


@pytest.mark.parametrize(
    "devices", [{"rosa": ["cuda:0"], "lily": ["cuda:0", "cuda:1"]}, {"rosa": ["cpu"], "lily": ["cuda"]}]
)
def test_a_plain_run_with_a_card_is_told_that_nccl_is_not_encrypted(devices):
    first, *more = plain_lines(placed(**devices))
    assert first.startswith("plain: ")
    assert more == [NCCL]


@pytest.mark.parametrize("devices", [{"rosa": ["cpu"], "lily": ["cpu", "cpu"]}, {"rosa": ["cuda:0", "cuda:1"]}])
def test_without_a_card_or_another_machine_there_is_nothing_to_tell_of_nccl(devices):
    assert len(plain_lines(placed(**devices))) == 1
