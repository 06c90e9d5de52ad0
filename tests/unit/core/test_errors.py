from potluck.core.errors import PotluckError, SettingsError, did_you_mean


def test_an_error_carries_its_fix_even_in_a_plain_traceback():
    error = SettingsError("no such model", fix="choose another")
    assert isinstance(error, PotluckError)
    assert error.fix == "choose another"
    assert str(error) == "no such model\n  fix: choose another"


def test_a_mistyped_name_gets_the_closest_one():
    assert did_you_mean("resnet8", ["resnet18", "bert"]).startswith("did you mean 'resnet18'? ")
    assert did_you_mean("xyz", ["b", "a"]) == "choose one of: a, b"
