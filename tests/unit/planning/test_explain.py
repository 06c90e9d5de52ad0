"""What a plan says of itself."""

import pytest

from potluck.planning.explain import alone_text


@pytest.mark.parametrize(("alone", "together", "option"), [(985, 658, "--machines oak"), (274, 337, "--keep elm")])
def test_the_advice_is_for_the_faster_of_one_machine_and_all(alone, together, option):
    text = alone_text("oak", ["elm"], alone, together)
    assert text == f"oak alone does {alone} samples/s; with elm it would be {together}: use {option}"
