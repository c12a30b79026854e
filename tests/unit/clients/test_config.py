"""Client settings: validation at construction."""

import dataclasses
from typing import Any

import pytest

from quorumlog.clients.config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
    make_config,
    parse_bootstrap,
)
from quorumlog.errors import InvalidConfig, UnsupportedCompression
from quorumlog.records import Codec


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (ClientConfig, ClientSettings),
        (ProducerConfig, ProducerSettings),
        (ConsumerConfig, ConsumerSettings),
    ],
)
def test_the_keyword_arguments_are_the_fields(config: type, settings: type) -> None:
    fields = {field.name: field.type for field in dataclasses.fields(config)}
    fields.pop("transactional_id", None)  # an argument of its own, which determines the class
    assert settings.__annotations__ == fields


def test_invalid_values_are_refused_with_valid_ones() -> None:
    with pytest.raises(InvalidConfig, match="acks is 'some': give one of all, leader, none"):
        ProducerConfig(acks="some")
    with pytest.raises(InvalidConfig, match="linger_ms is -1: give 0 or more"):
        ProducerConfig(linger_ms=-1)
    with pytest.raises(UnsupportedCompression, match="zstd"):
        ProducerConfig(compression="brotli")
    with pytest.raises(InvalidConfig, match="on_out_of_range"):
        ConsumerConfig(on_out_of_range="skip")


@pytest.mark.parametrize("value", ["5", 0.5, None, True])
def test_non_integer_is_refused_at_construction(value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"linger_ms is .*: give a whole number, 0 or more"):
        ProducerConfig(linger_ms=value)


def test_a_setting_that_does_not_exist_names_the_nearest_one() -> None:
    with pytest.raises(TypeError, match="no setting 'linger': did you mean linger_ms"):
        make_config(ProducerConfig, {"linger": 5})
    with pytest.raises(TypeError, match="no setting 'zzz': there are fetch_max_wait_ms, "):
        make_config(ConsumerConfig, {"zzz": 5})


def test_compression_names_a_codec() -> None:
    assert ProducerConfig(compression="lz4").codec is Codec.LZ4


def test_bootstrap_addresses_are_split() -> None:
    assert parse_bootstrap("a:1, b:2,") == ("a:1", "b:2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://host:80",
        5,
        ["host:1"],
        "host",
        "host:",
        ":9094",
        "host:x",
        "host:70000",
        "host:0",
    ],
)
def test_invalid_address_is_refused(text: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"host:port"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("compression", "level", "sentence"),
    [
        ("zstd", 23, "zstd takes 1 to 22"),
        ("gzip", 0, "gzip takes 1 to 9"),
        ("lz4", "3", "lz4 takes 1 to 12"),
        ("snappy", 1, "snappy has no levels"),
        ("none", 1, "none has no levels"),
    ],
)
def test_a_level_is_one_of_its_codec(compression: str, level: Any, sentence: str) -> None:
    with pytest.raises(InvalidConfig, match=sentence):
        ProducerConfig(compression=compression, compression_level=level)


@pytest.mark.parametrize(
    ("acks", "name"), [(0, "none"), (1, "leader"), (-1, "all"), ("1", "leader"), ("all", "all")]
)
def test_acks_accepts_the_values_of_kafka(acks: str | int, name: str) -> None:
    assert ProducerConfig(acks=acks).acks_name == name
    with pytest.raises(InvalidConfig, match="acks"):
        ProducerConfig(acks=2)


def test_a_linger_that_outlasts_the_delivery_deadline_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="expire before they are sent"):
        ProducerConfig(linger_ms=1_000, delivery_timeout_ms=1_000)
    assert ProducerConfig(linger_ms=0, delivery_timeout_ms=1).linger_ms == 0


def test_request_size_is_bounded_by_the_broker_limit() -> None:
    with pytest.raises(InvalidConfig, match="max_request_size is 67108865: give 67108864 or less"):
        ProducerConfig(max_request_size=(64 << 20) + 1)


def test_policy_for_a_full_buffer_has_two_values() -> None:
    with pytest.raises(InvalidConfig, match="on_full is 'drop': give one of wait, raise"):
        ProducerConfig(on_full="drop")
