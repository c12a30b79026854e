"""Views of contents and conditions of searches, without a browser."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.clients.consumer.record import ConsumerRecord
from quorumlog.console.record_filter import compile_filter
from quorumlog.console.record_views import TEXT_BYTES, indent, view_of
from quorumlog.errors import InvalidRequest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.long
@given(VALUES, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]))
def test_indented_json_equals_that_of_the_encoder(
    value: object, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, separators=separators)
    assert indent(text, 10**9) == (json.dumps(value, indent=2), True)


@given(st.binary(max_size=300), st.sampled_from(["text", "json", "hex"]))
def test_every_content_has_each_view(content: bytes, kind: str) -> None:
    assert view_of(content, kind).shown <= len(content)


@pytest.mark.parametrize("nested", ['{"a":' * 300 + "1" + "}" * 300, "[" * 300 + "]" * 300])
def test_indentation_of_nested_json_is_bounded(nested: str) -> None:
    view = view_of(nested.encode(), "json")
    assert len(view.text) <= TEXT_BYTES


def test_text_is_cut_between_characters() -> None:
    content = b"x" + "\N{EURO SIGN}".encode() * TEXT_BYTES
    view = view_of(content, "text")
    assert view.note == ""
    assert TEXT_BYTES - 3 <= view.shown <= TEXT_BYTES


DOCUMENT = b'{"a": {"b c": [1, {"d": "x=y"}, true, null]}, "n": 12345678901234567890, "e": "5"}'


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a['b c'][1].d = x=y", True),
        ("a['b c'][*].d", True),
        ("$.a.* ", True),
        ("$.n = 12345678901234567890", True),
        ("$.n = 12345678901234567891", False),
        ("$.e = 5", True),
        ('$.e = "5"', True),
        ("$.a['b c'][2] = true", True),
        ("$.a['b c'][3] = null", True),
        ("$.a['b c'][4]", False),
        ("$.missing", False),
        ("$.a = {}", False),
    ],
)
def test_json_path_selects(path: str, expected: bool) -> None:
    matches = compile_filter("value", "json", path)
    assert matches(ConsumerRecord("t", 0, 0, 0, None, DOCUMENT, ())) is expected


@pytest.mark.parametrize("value", [b"[" * 500_000, b"9" * 10_000, b"\xff", b"", None])
def test_json_path_ignores_contents_that_are_not_json(value: bytes | None) -> None:
    matches = compile_filter("value", "json", "$.a")
    assert not matches(ConsumerRecord("t", 0, 0, 0, None, value, ()))


def test_regular_expression_is_linear_and_reads_bytes() -> None:
    matches = compile_filter("value", "regex", "(a+)+$")
    assert not matches(ConsumerRecord("t", 0, 0, 0, None, b"a" * 1_000_000 + b"\xff!", ()))
    headers = (("trace", b"abc\xff"), ("empty", None))
    assert compile_filter("header", "regex", "^ab")(ConsumerRecord("t", 0, 0, 0, b"", b"", headers))


def test_expression_that_is_too_complex_for_a_large_record_is_rejected() -> None:
    matches = compile_filter("value", "regex", "(a?){200}b")
    assert not matches(ConsumerRecord("t", 0, 0, 0, None, b"a" * 300, ()))
    with pytest.raises(InvalidRequest, match="too complex for a record with 1,000,000 bytes"):
        matches(ConsumerRecord("t", 0, 0, 0, None, b"a" * 1_000_000, ()))
    with pytest.raises(InvalidRequest, match="pattern too large"):
        compile_filter("value", "regex", "(.?){1000}")


@pytest.mark.parametrize("text", ["", "$", "a b", "$.a..b", "$[-1]", "$['x", "= 5"])
def test_malformed_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="JSON path"):
        compile_filter("value", "json", text)
