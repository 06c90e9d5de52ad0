"""Text from elsewhere can be printed: nothing in it reaches the terminal as a command."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.core.printable import printable, printable_data


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, accented é and 漢字 stay", "plain, accented é and 漢字 stay"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x9b1A", "\\x1b[2J\\x9b1A"),
        ("over\rwritten\r\n", "over\\rwritten\n"),
        ("half \ud800", "half \\ud800"),
        ("gpj\u202e.exe", "gpj\\u202e.exe"),
    ],
)
def test_control_characters_are_shown_as_escapes(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(codec=None)))
def test_no_text_holds_a_control_character_afterwards(text):
    shown = printable(text)
    assert {unicodedata.category(letter) for letter in shown.replace("\n", "").replace("\t", "")}.isdisjoint(
        {"Cc", "Cs", "Zl", "Zp"}
    )
    shown.encode()
    assert printable(shown) == shown


def test_data_is_made_printable_to_its_leaves():
    assert printable_data({"a\x1bc": ["\x07", 1, None, {"b": "\x1b[0mx"}]}) == {
        "a\\x1bc": ["\\x07", 1, None, {"b": "x"}]
    }
