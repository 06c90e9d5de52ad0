"""Device code speaks `torch.accelerator` only, so that it serves every kind of accelerator, a test's stand-in too."""

import ast
import re
from pathlib import Path

import potluck

PACKAGE = Path(potluck.__file__).parent
KINDS = {"cuda", "hip", "hpu", "mps", "npu", "xpu"}

# Modules that name a kind of accelerator, and why. An entry that is not needed any more fails the test, too.
MAY_NAME_A_KIND = {
    "core/torchrun_variables.py": "CUDA_VISIBLE_DEVICES, by which a script that does not use Potluck finds its card",
    "engine/group/nccl.py": "NCCL serves CUDA's devices only; two workers must not share a card, which NCCL refuses",
    "planning/backend_choice.py": "NCCL serves CUDA's devices only",
    "doctor/backend_facts.py": "NCCL serves CUDA's devices only",
    "probes/torch_facts.py": "the doctor's facts: what this build of torch was made for, and its NCCL",
    "doctor/checks/agreement.py": "NCCL and RCCL cannot talk to each other",
    "doctor/checks/software.py": "the doctor explains a build of torch that does not suit NVIDIA's driver or card",
    "measuring/imagined.py": "a card that is only described is one of NVIDIA's, as all of the table are",
    "probes/selftest/worker.py": "the self-test's file says which build of torch ran",
}


def kinds_named(tree):
    """Kinds of accelerators that code names: torch.cuda, or the string "cuda", with or without a number."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in KINDS
            and ast.unparse(node.value) in ("torch", "torch.backends")
        ):
            yield f"torch.{node.attr}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition(":")[0] in KINDS:
            yield repr(node.value)


def test_only_these_modules_name_a_kind_of_accelerator():
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        if named := sorted(set(kinds_named(ast.parse(file.read_text())))):
            found[str(file.relative_to(PACKAGE))] = named
    assert found.keys() == MAY_NAME_A_KIND.keys(), found


def test_nothing_in_src_knows_the_stand_in_accelerator():
    name = re.compile(r"STANDIN_|\bstandin\b")
    assert not [file for file in PACKAGE.rglob("*.py") if name.search(file.read_text())]
