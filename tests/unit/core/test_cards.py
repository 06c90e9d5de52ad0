"""Names of cards as people say them."""

import pytest

from potluck.core.cards import label, labels, short_name, together


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA GeForce RTX 3070", "RTX 3070"),
        ("NVIDIA GeForce GTX 1660 Ti", "GTX 1660 Ti"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla T4", "Tesla T4"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
        ("AMD Radeon VII", "Radeon VII"),
        ("Intel(R) Arc(TM) A770 Graphics", "Arc A770"),
        ("NVIDIA Graphics", "NVIDIA Graphics"),
        ("RTX\x1b[2J 3070\n", "RTX\\x1b[2J 3070"),
        ("x" * 300, "x" * 60),
    ],
)
def test_the_maker_and_what_could_harm_a_terminal_are_left_out(name, short):
    assert short_name(name) == short


def test_equal_cards_stay_apart_and_are_counted_when_all_are_named():
    cards = {"cuda:0": "NVIDIA GeForce RTX 3070", "cuda:1": "NVIDIA GeForce GTX 1660", "cuda:2": "RTX 3070"}
    found = labels(cards)
    assert found == {"cuda:0": "RTX 3070 (1 of 2)", "cuda:1": "GTX 1660", "cuda:2": "RTX 3070 (2 of 2)"}
    assert together(found.values()) == "2 x RTX 3070, GTX 1660"
    assert together([found["cuda:2"]]) == "RTX 3070 (2 of 2)"


def test_a_device_without_a_known_card_is_called_by_its_own_name():
    assert label("cpu", {"cuda:0": "RTX 3070"}) == "cpu"
    assert label("cuda:1", {"cuda:0": "RTX 3070", "cuda:1": ""}) == "cuda:1"
    assert label("cuda", {"cuda:0": "RTX 3070"}) == "RTX 3070"
    assert together(["cpu"]) == "cpu"
