"""Hidden characters of names and records."""

import subprocess

import pytest

from quorumlog.visible_text import shell_word, visible


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


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("plain", "plain"),
        ("it's $HOME", "'it'\"'\"'s $HOME'"),
        ("it's\\n\x1b[31m", "$'it\\'s\\\\n\\x1b[31m'"),
        ("\x9b5\u202eevil\u20665", "$'\\U0000009b5\\U0000202eevil\\U000020665'"),
    ],
)
def test_shell_word_has_no_hidden_character_and_means_the_text(text: str, word: str) -> None:
    assert shell_word(text) == word
    command = ["bash", "-c", f"printf %s {word}"]
    environment = {"LC_ALL": "C.UTF-8"}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert printed.decode() == text
