"""torchvision, timm and Ultralytics, for the examples that use them, in a folder of their own.

The folder is `vision` in the virtual environment; .ci/run fills it. They are not installed like other packages, because
transformers and others import torchvision wherever it is, and beside a torch without CUDA that fails.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

VISION_EXAMPLES = ("classify_timm", "yolo_detection")
FOLDER = Path(sys.prefix) / "vision"


def vision_variables() -> dict[str, str]:
    """Environment variables for a Python that imports these packages; skips the test where they are not installed."""
    if not FOLDER.is_dir() and importlib.util.find_spec("ultralytics") is None:
        pytest.skip("the vision packages are not installed: see .ci/run")
    paths = [str(Path(__file__).parent / "vision"), str(FOLDER), os.environ.get("PYTHONPATH", "")]
    # Ultralytics looks for a connection, and installs what it misses, unless it is told not to.
    quiet = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false", "YOLO_CONFIG_DIR": str(Path.cwd())}
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **quiet}
