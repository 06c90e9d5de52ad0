"""Gloo or NCCL: a pure choice from what the workers say about themselves, with its reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.errors import GroupError
from potluck.planning.backend_choice import BackendFacts, choose_backend, explain_backend


def gpu(machine, nccl="2.27.3", device="cuda:0", card=""):
    return BackendFacts(machine=machine, device=device, nccl=nccl, card=card)


def cpu(machine):
    return BackendFacts(machine=machine, device="cpu")


CASES = [
    ([gpu("rosa"), gpu("lily")], "nccl", "every worker has a CUDA device of its own and NCCL 2.27.3", ()),
    ([gpu("rosa"), gpu("rosa", device="cuda:1")], "nccl", "every worker has a CUDA device of its own", ()),
    ([cpu("rosa"), cpu("lily")], "gloo", "no worker trains on a GPU", ()),
    ([gpu("rosa"), cpu("fern")], "gloo", "fern trains on its CPU", ()),
    ([gpu("rosa"), gpu("lily"), cpu("fern")], "gloo", "fern trains on its CPU", ("fern",)),
    (
        [gpu("rosa"), gpu("lily"), cpu("fern"), cpu("moss")],
        "gloo",
        "fern and moss train on their CPUs",
        ("fern", "moss"),
    ),
    ([gpu("rosa"), cpu("rosa"), gpu("lily")], "gloo", "rosa trains on its CPU", ()),
    ([gpu("rosa", "2.27.3"), gpu("lily", "2.26.2")], "gloo", "different NCCL: rosa 2.27.3, lily 2.26.2", ()),
    ([gpu("rosa", "2.26.2"), gpu("lily", "2.26.2 (RCCL)")], "gloo", "different NCCL", ()),
    ([gpu("rosa", ""), gpu("lily")], "gloo", "torch on rosa has no NCCL for cuda:0", ()),
    ([gpu("rosa", "", "xpu:0"), gpu("lily", "", "xpu:0")], "gloo", "torch on rosa and lily has no NCCL for xpu:0", ()),
    ([gpu("rosa", card="GPU-1"), gpu("rosa", card="GPU-1")], "gloo", "workers of rosa share one GPU", ()),
    ([gpu("rosa", card="GPU-XX 1"), gpu("lily", card="GPU-XX 1")], "nccl", "every worker has", ()),
    ([gpu("rosa", card="GPU-1"), gpu("rosa", card="GPU-2")], "nccl", "every worker has", ()),
    ([gpu("rosa")], "gloo", "one worker has nobody", ()),
]


@pytest.mark.parametrize(("workers", "backend", "reason", "held_back_by"), CASES)
def test_the_backend_is_one_that_all_workers_have(workers, backend, reason, held_back_by):
    choice = choose_backend("auto", workers)
    assert choice.backend == backend
    assert reason in choice.reason
    assert choice.held_back_by == held_back_by


def test_gloo_takes_an_accelerators_gradients_through_host_memory():
    assert choose_backend("auto", [gpu("rosa"), cpu("fern")]).through_host
    assert not choose_backend("auto", [cpu("rosa"), cpu("fern")]).through_host
    assert not choose_backend("auto", [gpu("rosa"), gpu("fern")]).through_host


def test_a_user_decides():
    chosen = choose_backend("gloo", [gpu("rosa"), gpu("lily")])
    assert (chosen.backend, chosen.reason) == ("gloo", "--backend gloo asks for it")
    assert choose_backend("nccl", [gpu("rosa"), gpu("lily")]).backend == "nccl"
    with pytest.raises(GroupError, match="NCCL is asked for, but fern trains on its CPU") as refused:
        choose_backend("nccl", [gpu("rosa"), cpu("fern")])
    assert "--machines" in refused.value.fix


WORKERS = st.builds(
    BackendFacts,
    machine=st.sampled_from("abc"),
    device=st.sampled_from(["cpu", "cuda:0", "cuda:1", "xpu:0"]),
    nccl=st.sampled_from(["", "2.26", "2.27"]),
    card=st.sampled_from(["", "x", "y"]),
)


@given(st.lists(WORKERS, min_size=2, max_size=6))
def test_all_workers_come_to_the_same_choice_and_nccl_is_never_chosen_for_a_worker_without(workers):
    choice = choose_backend("auto", workers)
    if choice.backend == "nccl":
        assert {worker.nccl for worker in workers} == {workers[0].nccl} != {""}
        assert not any(worker.is_on_cpu for worker in workers)
    if choice.held_back_by:
        others = [worker for worker in workers if worker.machine not in choice.held_back_by]
        assert choose_backend("auto", others).backend == "nccl"
    assert choice.reason


def test_a_plan_says_when_only_cpus_keep_the_others_from_nccl_and_names_no_figure():
    [line] = explain_backend([("rosa", "cuda:0"), ("lily", "cuda:0"), ("fern", "cpu")])
    assert "because fern trains on its CPU; without fern, rosa and lily would use NCCL" in line
    assert "is not measured" in line
    assert "--machines rosa,lily" in line
    assert not explain_backend([("rosa", "cuda:0"), ("lily", "cuda:0")])
    assert not explain_backend([("rosa", "cuda:0"), ("fern", "cpu")])  # one card has nobody to exchange with
    assert not explain_backend([("rosa", "cpu"), ("fern", "cpu")])
    assert not explain_backend([("rosa", "xpu:0"), ("lily", "xpu:0"), ("fern", "cpu")])
