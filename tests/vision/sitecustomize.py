"""Lets torchvision be imported beside a torch without CUDA; Python runs this file first where it is on PYTHONPATH.

torchvision's wheel on PyPI is linked with CUDA's libraries, so beside a CPU build of torch its operators are missing,
and its import ends with "operator torchvision::nms does not exist". Declaring the two operators that the import itself
asks for is enough for everything that is written in Python: transforms, datasets, models.
"""

import sys
from importlib.machinery import PathFinder

OPERATORS = ("nms", "qnms")


class _DeclareOperators:
    """Asked where torchvision is, before it is imported: declares its operators where they cannot be loaded."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            declare(PathFinder.find_spec(name, path))


def declare(spec):
    """Declare the operators, unless torchvision's own library brings them."""
    import torch

    try:
        torch.ops.load_library(f"{spec.submodule_search_locations[0]}/_C.so")
    except OSError:
        for name in OPERATORS:
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, _DeclareOperators())
