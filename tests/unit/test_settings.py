"""Values of settings: units, sources, and error messages."""

from pathlib import Path
from typing import Any

import pytest

from quorumlog.errors import InvalidConfig
from quorumlog.settings import (
    DEFAULT,
    Setting,
    SettingSource,
    ValueOrigin,
    check_value,
    environment_source,
    file_source,
    flag_source,
    nearest,
    parse_value,
    read_settings,
    resolve,
    split_assignments,
    unknown_variables,
    variable_of,
)
from quorumlog.settings.quantities import FACTORS, parse_quantity, quantity_text
from quorumlog.settings.sources import line_numbers

WAIT = Setting(name="wait.ms", kind=int, default=5, doc="d", unit="ms", low=1, high=9_000)
NAME = Setting(name="node.name", kind=str, default="n", doc="d")
MODE = Setting(name="mode", kind=str, default="a", doc="d", choices=("a", "b"))
ROLES = Setting(name="node.roles", kind=tuple, default=("x",), doc="d")
MUST = Setting(name="dir", kind=str, default=None, doc="d")
ROWS = (WAIT, NAME, MODE, ROLES, MUST)


# --- numbers with units ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("7d", "ms", 604_800_000),
        ("90 s", "ms", 90_000),
        ("5min", "ms", 300_000),
        ("-1", "ms", -1),
        ("0250ms", "ms", 250),
        ("1GiB", "bytes", 1 << 30),
        ("64 KiB", "bytes", 65_536),
        ("12B", "bytes", 12),
        ("7", "records", 7),
    ],
)
def test_a_number_may_have_a_unit_that_means_one_number(text: str, unit: str, number: int) -> None:
    assert parse_quantity(text, unit) == number


@pytest.mark.parametrize(
    ("text", "unit", "remedy"),
    [
        ("5m", "ms", "write min for minutes"),
        ("5MB", "bytes", "write MiB for powers of 1024"),
        ("5k", "bytes", "write KiB for powers of 1024"),
        ("1.5h", "ms", "give a whole number of ms, or one with ms, s, min, h, d"),
        ("d", "ms", "give a whole number of ms"),
        ("", "ms", "give a whole number of ms"),
        ("1_000", "ms", "give a whole number of ms"),
        ("\u0661", "ms", "give a whole number of ms"),
        ("0x10", "bytes", "give a whole number of bytes"),
        ("7d", "records", "give a whole number"),
        ("9" * 5_000, "ms", "give a whole number"),
    ],
)
def test_non_integer_is_refused_with_the_remedy(text: str, unit: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        parse_quantity(text, unit)


@pytest.mark.parametrize("unit", FACTORS)
def test_number_round_trip(unit: str) -> None:
    factors = FACTORS[unit].values()
    numbers = [factor * n + more for factor in factors for n in (1, 7, 100) for more in (0, 1)]
    for number in (0, -1, *numbers):
        assert parse_quantity(quantity_text(number, unit), unit) == number


# --- one value ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "value", "sentence"),
    [
        (WAIT, 0, r"wait.ms is 0; give 1\.\.9000 ms"),
        (WAIT, 9_001, r"wait.ms is 9001; give 1\.\.9000 ms"),
        (WAIT, "10s", r"wait.ms is 10000; give 1\.\.9000 ms"),
        (WAIT, "soon", r"wait.ms is 'soon'; give a whole number of ms.*, 1\.\.9000 ms"),
        (WAIT, 1.0, r"wait.ms is 1.0; give a whole number"),
        (WAIT, True, r"wait.ms is True; give a whole number"),
        (WAIT, [1], r"wait.ms is \[1\]; give a whole number"),
        (NAME, 7, r"node.name is 7; give text"),
        (MODE, "c", r"mode is 'c'; give one of a, b"),
        (ROLES, "x", r"node.roles is 'x'; give a list of text"),
        (ROLES, ["x", 1], r"give a list of text"),
    ],
)
def test_invalid_value_is_named_with_the_valid_ones(
    row: Setting, value: object, sentence: str
) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        check_value(row, value)


def test_flags_and_variables_spell_every_kind() -> None:
    assert parse_value(WAIT, "2s") == 2_000
    assert parse_value(ROLES, "a, b,,c") == ("a", "b", "c")
    assert parse_value(ROLES, "") == ()
    assert parse_value(NAME, " x ") == " x "


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("wait.m", "wait.ms"), ("WAIT_MS", "wait.ms"), ("node_name", "node.name"), ("zzz", None)],
)
def test_nearest_name_ignores_case(wrong: str, right: str | None) -> None:
    assert nearest(wrong, [row.name for row in ROWS]) == right


# --- sources -----------------------------------------------------------------------------------


def sources(*, flag: bool, environment: bool, file: bool) -> list[SettingSource]:
    return [
        flag_source(ROWS, [("wait.ms", "1", "--wait")] if flag else []),
        environment_source(ROWS, {"QUORUMLOG_WAIT_MS": "2"} if environment else {}),
        file_source(ROWS, "[wait]\nms = 3\n" if file else "", path="f.toml"),
    ]


FLAG = ValueOrigin(kind="flag", place="--wait")
VARIABLE = ValueOrigin(kind="environment", place="QUORUMLOG_WAIT_MS")
FILE = ValueOrigin(kind="file", place="f.toml:2")


@pytest.mark.parametrize(
    ("flag", "environment", "file", "value", "origin"),
    [
        (True, True, True, 1, FLAG),
        (True, True, False, 1, FLAG),
        (True, False, True, 1, FLAG),
        (True, False, False, 1, FLAG),
        (False, True, True, 2, VARIABLE),
        (False, True, False, 2, VARIABLE),
        (False, False, True, 3, FILE),
        (False, False, False, 5, DEFAULT),
    ],
)
def test_flag_overrides_environment_file_and_default_in_that_order(
    flag: bool, environment: bool, file: bool, value: int, origin: ValueOrigin
) -> None:
    found = resolve(ROWS, sources(flag=flag, environment=environment, file=file))
    assert (found["wait.ms"], found.origins["wait.ms"]) == (value, origin)
    assert (found["node.roles"], found.origins["node.roles"]) == (("x",), DEFAULT)
    assert "dir" not in found.values, "it must be given"


def test_falsy_value_overrides_later_sources() -> None:
    found = resolve(ROWS, [SettingSource(values={"node.name": ("", FLAG)})])
    assert (found["node.name"], found.origins["node.name"]) == ("", FLAG)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["wait.ms"], r"--set 'wait.ms': give NAME=VALUE"),
        (["=5"], r"--set '=5': give NAME=VALUE"),
        (["wait=5"], r"--set wait: unknown setting wait; did you mean wait.ms\?"),
        (["wait.ms=5", "wait.ms=6"], r"wait.ms is given twice, by --set wait.ms and --set"),
        (["wait.ms=x"], r"wait.ms is 'x'; give"),
    ],
)
def test_invalid_assignment_is_refused(given: list[str], sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        flag_source(ROWS, split_assignments(given, flag="--set"))


def test_a_value_may_hold_an_equals_sign() -> None:
    assert split_assignments(["a=b=c"], flag="--set") == [("a", "b=c", "--set a")]


def test_invalid_variable_is_named_and_an_empty_one_is_ignored() -> None:
    with pytest.raises(InvalidConfig, match=r"QUORUMLOG_WAIT_MS: wait.ms is '-'; give"):
        environment_source(ROWS, {"QUORUMLOG_WAIT_MS": "-"})
    assert environment_source(ROWS, {"QUORUMLOG_WAIT_MS": "", "WAIT_MS": "7"}).values == {}


def test_unknown_variable_is_reported_with_the_nearest_one() -> None:
    known = [variable_of(row.name) for row in ROWS]
    given = {"QUORUMLOG_WAITMS": "1", "QUORUMLOG_DIR": "x", "PATH": "y", "QUORUMLOG_Q_Q_Q": ""}
    first, second = unknown_variables(given, known)
    assert "QUORUMLOG_Q_Q_Q is not known and was ignored" in first
    assert second.endswith("was ignored; did you mean QUORUMLOG_WAIT_MS?")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("wait.ms = ", r"f.toml is not TOML"),
        ("\nwait.ms = 0", r"f.toml:2: wait.ms is 0; give 1\.\.9000 ms"),
        ("[node]\nname = 1", r"f.toml:2: node.name is 1; give text"),
        ("[node]\nnmae = 'x'", r"f.toml:2: unknown setting node.nmae; did you mean node.name\?"),
        ("wait = 5", r"f.toml:1: unknown setting wait"),
        ("node = { nam = 'x' }", r"f.toml: unknown setting node.nam; did"),
    ],
)
def test_error_in_a_file_is_reported_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        file_source(ROWS, text, path="f.toml")


def test_a_table_of_a_file_may_be_read_alone_or_left_out() -> None:
    text = '[client]\nmode = "b"\n[node]\nname = "x"\n'
    alone = file_source((MODE,), text, path="f", table=("client",))
    assert alone.values == {"mode": ("b", ValueOrigin(kind="file", place="f:2"))}
    rest = file_source(ROWS, text, path="f", others=("client",))
    assert list(rest.values) == ["node.name"]
    with pytest.raises(InvalidConfig, match=r"client is 5; make it a table"):
        file_source((MODE,), "client = 5", path="f", table=("client",))


def test_lines_are_found_under_tables_and_dots_and_quotes() -> None:
    text = "a.b = 1\n# c = 2\n[ d . e ]  # x\n'f' = 2\ng.h=3\n[[i]]\n[j]\nk = 1\n"
    expected: dict[str, Any] = {"a.b": 1, "d.e.f": 4, "d.e.g.h": 5, "j.k": 8}
    assert line_numbers(text) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("wait.ms = " + "9" * 5_000, "n.toml is not TOML: "),
        ("wait.ms = " + "[" * 5_000, "n.toml is not TOML: "),
        ('"wait.ms" = 5\nwait.ms = 6', "wait.ms is given twice"),
        ('node.name = "a\\u0000b"', r"n.toml:1: node.name is 'a\x00b'; give text"),
    ],
)
def test_error_about_a_file_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        file_source(ROWS, text, path="n.toml")
    assert sentence in caught.value.message


def test_variable_that_is_not_utf8_is_refused() -> None:
    """Bytes that are not UTF-8 reach Python as lone surrogates, which cannot be printed or sent."""
    with pytest.raises(InvalidConfig, match=r"QUORUMLOG_NODE_NAME: node\.name is .*; give text"):
        environment_source(ROWS, {"QUORUMLOG_NODE_NAME": "\udcff"})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "n.toml cannot be read: No such file or directory; name a TOML file"),
        (b"\xff\xfe", "n.toml cannot be read: it is not UTF-8 text; name a TOML file"),
        (b"\x00", None),
        (b"\xef\xbb\xbfwait.ms = 7\n", None),
    ],
)
def test_file_is_read_or_reported(
    tmp_path: Path, content: bytes | None, sentence: str | None
) -> None:
    path = tmp_path / "n.toml"
    if content is not None:
        path.write_bytes(content)
    if sentence is None:
        assert not read_settings(str(path)).startswith("\ufeff")
        return
    with pytest.raises(InvalidConfig) as caught:
        read_settings(str(path))
    assert caught.value.message.endswith(sentence)
