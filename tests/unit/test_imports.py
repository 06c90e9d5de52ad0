"""What may be imported when: the public names, no torch by accident, layers that work without it, a quick help."""

import resource
import subprocess
import sys
from pathlib import Path

import potluck

BLOCK_TORCH = "import sys; sys.modules['torch'] = None; sys.modules['torchft'] = None; "
NO_TORCH_MODULES = ["core", "events", "planning", "report", "machine", "doctor", "selftest"]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_the_public_names_are_these_and_all_exist():
    assert sorted(potluck.__all__) == ["PotluckError", "Run", "Stopped", "__version__", "start"]
    for name in potluck.__all__:
        assert getattr(potluck, name) is not None
    assert dir(potluck) == sorted(potluck.__all__)


def test_an_unknown_name_is_an_ordinary_attribute_error():
    assert not hasattr(potluck, "nonsense")


def test_importing_potluck_does_not_import_torch():
    done = python("import sys, potluck; print([m for m in ('torch', 'transformers', 'pydantic') if m in sys.modules])")
    assert done.stdout.strip() == "[]"


def test_layers_without_torch_work_where_torch_is_missing():
    package = Path(potluck.__file__).parent
    modules = [
        ".".join(("potluck", *path.relative_to(package).with_suffix("").parts))
        for layer in NO_TORCH_MODULES
        for path in (package / layer).rglob("*.py")
        if path.stem != "__init__"
    ]
    done = python(BLOCK_TORCH + "; ".join(f"import {module}" for module in modules))
    assert done.returncode == 0, done.stderr


def test_help_takes_at_most_400_ms_of_cpu_time():
    def cpu_seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = python(BLOCK_TORCH + "sys.argv = ['potluck', '--help']; from potluck.cli import main; main()")
        assert "train" in done.stdout, done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_seconds() for _ in range(3)) <= 0.4
