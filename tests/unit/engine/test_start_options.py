"""potluck.start and potluck train speak of the same options."""

import inspect
from dataclasses import fields

import potluck
from potluck.core.run_options import RunOptions, TrainOptions

OTHER_SPELLINGS = {"experiment_name": "name", "master_addr": "master", "master_port": "master"}
ONLY_IN_SCRIPTS = {"runs_dir", "profile_name", "settings", "watch", "quiet"}


def test_start_takes_every_option_of_a_run_with_the_same_default():
    keywords = inspect.signature(potluck.start).parameters
    spelled = {OTHER_SPELLINGS.get(field.name, field.name): field.default for field in fields(RunOptions)}
    assert spelled.keys() | ONLY_IN_SCRIPTS == keywords.keys()
    assert spelled == {name: keywords[name].default for name in spelled}


def test_the_trainer_hands_all_of_them_to_start():
    given = TrainOptions(seed=3, keep=("rosa",), master_addr="10.0.0.1", load_balance_policy="proportional").for_start()
    assert given.keys() | {"name"} | ONLY_IN_SCRIPTS == inspect.signature(potluck.start).parameters.keys()
    assert (given["seed"], given["keep"], given["master"]) == (3, ("rosa",), ("10.0.0.1", 29500))
    assert given["load_balance_policy"] == "proportional"
    assert TrainOptions(enable_load_balancing=False).for_start()["load_balance_policy"] == "static"
