import pytest

from potluck.core.version_rule import PACKAGES, Fit, fix_commands, fix_in_words, judge


@pytest.mark.parametrize(
    ("package", "own", "other", "fit"),
    [
        ("potluck", "0.1.0", "0.1.0", Fit.EQUAL),
        ("potluck", "0.1.0", "0.1.1", Fit.REFUSED),
        ("potluck", "0.1.0", "missing", Fit.REFUSED),
        ("torchft", "0.2.0", "0.2.7", Fit.EQUAL),
        ("torchft", "0.2.0", "0.3.0", Fit.REFUSED),
        ("torch", "2.13.0+cpu", "2.13.1+cu128", Fit.EQUAL),
        ("torch", "2.13.0+cpu", "2.11.0+cu128", Fit.CHECKED),
        ("torch", "2.13.0", "2.15.0a0+git1234", Fit.CHECKED),
        ("torch", "2.13.0", "2.10.0", Fit.REFUSED),
        ("torch", "2.13.0", "3.13.0", Fit.REFUSED),
        ("torch", "2.13.0", "missing", Fit.REFUSED),
        ("python", "3.11.7", "3.11.2", Fit.EQUAL),
        ("python", "3.12.1", "3.10.13", Fit.CHECKED),
        ("python", "3.13.0", "3.10.13", Fit.REFUSED),
        ("python", "3.12.1", "", Fit.REFUSED),
    ],
)
def test_versions_are_equal_or_checked_or_refused(package, own, other, fit):
    assert judge(package, own, other) is judge(package, other, own) is fit


def test_every_package_has_a_fix_that_names_the_wanted_version():
    for package in PACKAGES:
        assert fix_in_words(package, "3.12.1+cu130", "3.9.0")
    assert fix_commands("torch", "2.13.0+cu130", "2.9.1") == ("python -m pip install 'torch==2.13.0'",)
    assert "uv venv --seed --python 3.12 " in fix_in_words("python", "3.12.1", "3.9.2")


def test_a_cpu_build_is_replaced_by_a_cpu_build():
    (command,) = fix_commands("torch", "2.13.0+cu130", "2.9.1+cpu")
    assert command.endswith("'torch==2.13.0' --index-url https://download.pytorch.org/whl/cpu")
