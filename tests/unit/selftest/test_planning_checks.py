"""Which checks a machine gets, by its devices and backends."""

import pytest

from potluck.core.errors import SettingsError
from potluck.selftest.catalogue import CHECKS, TIMED, check_known, fix_for, plan_checks
from potluck.selftest.crews import crews_of, uneven_shares
from potluck.selftest.orders import Described


def seen(*devices, backends=("gloo",), has_float64=True):
    return Described(devices=devices, backends=backends, has_float64=has_float64, versions={}, num_threads=2)


def names(devices, backends=("gloo",)):
    return [crew.name for crew in crews_of(devices, backends)]


def test_a_machine_without_a_card_tests_two_workers_on_its_cpu():
    assert names(()) == ["2 workers on cpu, gloo"]


def test_two_workers_share_a_single_card_and_train_with_the_cpu():
    assert names(("cuda:0",), ("gloo", "nccl")) == [
        "2 workers on cpu, gloo",
        "2 workers on cuda:0, gloo",
        "cuda:0 + cpu, gloo",
    ]


def test_several_cards_train_by_each_backend():
    assert names(("cuda:0", "cuda:1"), ("gloo", "nccl"))[1:3] == ["2 cuda, gloo", "2 cuda, nccl"]


@pytest.mark.parametrize("num_workers", range(2, 10))
def test_uneven_shares_take_every_sample_once_and_nobody_is_left_out(num_workers):
    shares = uneven_shares(num_workers, 16)
    assert sum(shares) == 16
    assert min(shares) >= 1
    assert shares[0] > 16 / num_workers


@pytest.mark.parametrize("devices", [(), ("cuda:0",), ("xpu:0", "xpu:1")])
def test_every_check_is_planned_or_left_out_with_a_reason(devices):
    planned = plan_checks(seen(*devices))
    assert {one.check for one in planned} == set(CHECKS)
    assert [one.check for one in planned if one.reason] == ([] if devices else ["together"])


def test_each_number_format_is_tested_and_float64_only_where_the_device_has_it():
    planned = plan_checks(seen("xpu:0", has_float64=False), only=["parity"])
    assert [one.where.rpartition(", ")[2] for one in planned] == [
        "fp64",
        "fp32",
        "bf16",
        "fp16",
        "fp32",
        "bf16",
        "fp16",
    ]


def test_quick_leaves_out_what_takes_long_unless_it_is_named():
    assert not TIMED & {one.check for one in plan_checks(seen(), is_quick=True)}
    assert [one.check for one in plan_checks(seen(), only=["bare-ddp"], is_quick=True)] == ["bare-ddp"]


def test_a_mistyped_check_is_refused_with_the_nearest_name():
    with pytest.raises(SettingsError, match="no check 'partiy'") as error:
        check_known(["partiy"])
    assert "'parity'" in error.value.fix


def test_every_check_has_something_to_type_after_it_failed():
    assert all("potluck " in fix_for(check) for check in CHECKS)
