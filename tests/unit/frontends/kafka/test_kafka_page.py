"""docs/kafka.md matches the offered requests, the limits and the settings."""

import re
from pathlib import Path

import pytest

from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.codecs.primitives import ENTRIES_MAX, TEXT_BYTES_MAX
from quorumlog.frontends.kafka.request import CLIENT_ID_BYTES_MAX
from quorumlog.frontends.kafka.request_limits import ELEMENTS_MAX, TAGS_MAX
from quorumlog.frontends.kafka.requests_page import key_table, with_table
from quorumlog.frontends.kafka.server import PLAIN_REQUEST_BYTES_MAX
from quorumlog.server.config import settings

PAGE = (Path(__file__).parents[4] / "docs" / "kafka.md").read_text()


@pytest.mark.plain
def test_the_table_of_requests_is_fresh() -> None:
    assert with_table(PAGE) == PAGE, "run `make docs`"
    assert key_table() in PAGE


@pytest.mark.plain
def test_every_request_has_its_own_sentence() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| [\d to]+ \| (.+)\. \|$", key_table(), re.MULTILINE)
    assert [(int(key), name) for key, name, _ in rows] == [(api.key, api.name) for api in APIS]
    assert all(sentence[0].isupper() for _, _, sentence in rows)
    assert len({sentence for _, _, sentence in rows}) == len(rows)


def test_requests_are_listed_by_ascending_key_each_once() -> None:
    keys = [api.key for api in APIS]
    assert keys == sorted(set(keys))


def test_fixed_limits_of_the_page_equal_those_of_the_code() -> None:
    bounds = PAGE.partition("## Bounds")[2].partition("\n## ")[0]
    assert f"| any other request | {PLAIN_REQUEST_BYTES_MAX >> 20} MiB |" in bounds
    assert f"| elements of all lists in one request | {ELEMENTS_MAX:,} |" in bounds
    assert f"| of Produce and Fetch | {ENTRIES_MAX:,} |" in bounds
    by_limit: dict[int, list[str]] = {}
    for api in APIS:
        by_limit.setdefault(api.elements_max, []).append(api.name)
    del by_limit[ELEMENTS_MAX]
    for limit, names in by_limit.items():
        *most, last = names
        listed = f"{', '.join(most)} and {last}" if most else last
        assert f"| of {listed} | {limit:,} |" in bounds
    assert f"| tagged fields in one part of a request | {TAGS_MAX:,} |" in bounds
    assert f"| bytes of any other text | {TEXT_BYTES_MAX:,} |" in bounds
    assert f"| bytes of a client id | {CLIENT_ID_BYTES_MAX:,} |" in bounds


def test_every_setting_that_the_page_names_exists() -> None:
    known = {row.name for row in settings()}
    named = set(re.findall(r"`((?:kafka|listeners|advertised|auto|produce|fetch)\.[a-z.]+)`", PAGE))
    assert {"kafka.request.bytes.max", "listeners.kafka", "auto.create.topics.enable"} <= named
    assert named <= known
