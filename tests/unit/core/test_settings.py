import pytest
import yaml

from potluck.core.errors import SettingsError
from potluck.core.settings import combine, given_values, make_settings, read_settings_file, settings_to_record


def write(folder, text):
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def test_flags_override_the_file(tmp_path):
    path = write(tmp_path, "model: resnet18\nepochs: 7\n")
    settings = combine(read_settings_file(path), {"epochs": 3})
    assert (settings.model, settings.epochs) == ("resnet18", 3)


def test_keys_may_be_spelled_like_the_flags(tmp_path):
    path = write(tmp_path, "global-batch: 32\nlr: 0.5\n")
    settings = combine(read_settings_file(path))
    assert (settings.global_batch, settings.learning_rate) == (32, 0.5)


def test_a_wrong_key_names_the_key_the_file_and_the_right_one(tmp_path):
    path = write(tmp_path, "modle: resnet18\n")
    with pytest.raises(SettingsError) as caught:
        read_settings_file(path)
    assert "'modle'" in caught.value.args[0]
    assert str(path) in caught.value.args[0]
    assert "did you mean 'model'?" in caught.value.fix


def test_a_wrong_value_names_the_key_and_the_file(tmp_path):
    path = write(tmp_path, "epochs: many\n")
    with pytest.raises(SettingsError, match=r"epochs in .*run\.yaml cannot be 'many'"):
        read_settings_file(path)


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words", "a: [1", "lr: 1\nlearning_rate: 2\n"])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, text):
    with pytest.raises(SettingsError, match=r"run\.yaml"):
        read_settings_file(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.yaml"):
        read_settings_file(tmp_path / "nowhere.yaml")


def test_an_empty_file_changes_nothing(tmp_path):
    assert read_settings_file(write(tmp_path, "# nothing\n")) == {}


def test_a_record_read_back_gives_the_same_settings(tmp_path):
    settings = make_settings({"mixed_precision": "no", "num_samples": 10, "data_dir": "x/y"})
    path = write(tmp_path, yaml.safe_dump(settings_to_record(settings)))
    assert combine(read_settings_file(path)) == settings


def test_yaml_reads_a_bare_no_as_false_and_we_know(tmp_path):
    assert combine(read_settings_file(write(tmp_path, "mixed_precision: no\n"))).mixed_precision == "no"


def test_two_ways_to_set_the_batch_at_once_are_refused():
    with pytest.raises(SettingsError, match="both global_batch and batch_size"):
        make_settings({"global_batch": 4, "batch_size": 4})


def test_a_flag_for_the_batch_replaces_the_other_kind_from_the_file():
    settings = combine({"global_batch": 4}, {"batch_size": 8})
    assert (settings.global_batch, settings.batch_size) == (None, 8)


def test_all_that_is_wrong_in_a_file_is_told_at_once(tmp_path):
    with pytest.raises(SettingsError) as told:
        read_settings_file(write(tmp_path, "epohcs: 3\nglobal_batch: many\nseed: -1\n"))
    for words in ("unknown key 'epohcs'", "global_batch in", "cannot be 'many'", "seed in"):
        assert words in told.value.args[0]
    assert "did you mean 'epochs'" in told.value.fix
    assert "global_batch: " in told.value.fix


@pytest.mark.parametrize(
    ("key", "value"), [("epochs", 0), ("global_batch", -1), ("learning_rate", 0), ("optimizer", "sdg"), ("seed", -1)]
)
def test_nonsense_is_refused(key, value):
    with pytest.raises(SettingsError, match=key):
        make_settings({key: value})


def test_a_host_is_sent_only_what_somebody_said():
    assert given_values([{"global_batch": 4, "data_dir": "x"}, {"batch_size": 8, "keep": ["rosa"]}]) == {
        "data_dir": "x",
        "batch_size": 8,
        "keep": ["rosa"],
    }
