"""What may be imported when: the public names, no torch by accident, layers that work without it, a quick help."""

import resource
import subprocess
import sys
from pathlib import Path

import potluck

BLOCKED = ("torch", "torchft")
BLOCK_TORCH = "import sys; " + "".join(f"sys.modules['{name}'] = None; " for name in BLOCKED)
HELP = BLOCK_TORCH + "sys.argv = ['potluck', '--help']; from potluck.cli import main as show\n"
TYPER_ALONE = """
import sys, typer
show = typer.Typer(rich_markup_mode="rich", add_completion=False)
@show.command()
def train(): pass
@show.command()
def run(): pass
sys.argv = ["potluck", "--help"]
"""
SHOW = "show()"
SHOW_AND_NAME_MODULES = """
try:
    show()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""
NO_TORCH_MODULES = ["core", "events", "planning", "report", "machine", "doctor", "selftest", "simulate"]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_the_public_names_are_these_and_all_exist():
    assert sorted(potluck.__all__) == ["PotluckError", "Run", "Stopped", "__version__", "data_dir", "start"]
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


def test_help_imports_only_potluck_and_what_typer_imports():
    ours, typers = (set(python(code + SHOW_AND_NAME_MODULES).stderr.split()) for code in (HELP, TYPER_ALONE))
    assert "potluck.cli.train" in ours
    assert {name for name in ours - typers if not name.startswith("potluck")} <= {"socket", "_socket", *BLOCKED}
    assert sum(name.startswith("potluck") for name in ours) <= 45  # 34 now: commands import the rest when they run


def test_help_costs_little_more_than_typer_itself():
    """Measured in turn with the smallest program that prints such a help, because the seconds are the computer's."""

    def cpu_seconds(code):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = python(code + SHOW)
        assert "train" in done.stdout, done.stderr
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(cpu_seconds(HELP), cpu_seconds(TYPER_ALONE)) for _ in range(5)]
    fastest, fastest_typer = map(min, zip(*pairs, strict=True))
    assert fastest <= 2.2 * fastest_typer  # 1.4 on a quiet computer, up to 1.7 on a busy one
