"""Hidden characters of names and records."""

import pytest

from quorumlog.visible_text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Größe, 東京, 👍", "plain, Größe, 東京, 👍"),
        ("a\nb\tc\0", "a\\nb\\tc\\0"),
        ("\x1b[31mred\x9b", "\\x1b[31mred\\x9b"),
        ("invoice\u202egnp.exe", "invoice\\u202egnp.exe"),
        ("\u2066a\u2069\u200b\ufeff", "\\u2066a\\u2069\\u200b\\ufeff"),
        ("\udc80", "\\udc80"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_hidden_characters_become_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown
