"""Settings are checked where they are given, and said once."""

import dataclasses

import pytest

from quorumlog.clients.config import (
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
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
    assert settings.__annotations__ == fields


def test_bad_values_are_refused_with_what_would_be_right() -> None:
    with pytest.raises(InvalidConfig, match="acks is 'some': give one of all, leader, none"):
        ProducerConfig(acks="some")
    with pytest.raises(InvalidConfig, match="linger_ms is -1: give 0 or more"):
        ProducerConfig(linger_ms=-1)
    with pytest.raises(UnsupportedCompression, match="zstd"):
        ProducerConfig(compression="brotli")
    with pytest.raises(InvalidConfig, match="on_out_of_range"):
        ConsumerConfig(on_out_of_range="skip")


def test_compression_names_a_codec() -> None:
    assert ProducerConfig(compression="lz4").codec is Codec.LZ4


def test_bootstrap_addresses_are_split() -> None:
    assert parse_bootstrap("a:1, b:2,") == ("a:1", "b:2")


@pytest.mark.parametrize("text", ["", "host", "host:", ":9094", "host:x", "host:70000", "host:0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"host:port"):
        parse_bootstrap(text)
