"""Responses have the bytes of the schema encoder."""

import struct
from dataclasses import fields
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from quorumlog.frontends.kafka import messages
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.response_encoder import StructEncoder
from quorumlog.frontends.kafka.schemas import response_schema

from .any_request import any_message, bytes_of

ANSWERS = [(api, version) for api in APIS for version in range(api.low, api.high + 1)]


def plain_of(message: Any) -> dict[str, Any]:
    """Return a message as plain fields, as handlers return it."""
    return {field.name: plain_value(getattr(message, field.name)) for field in fields(message)}


def plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [plain_value(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return plain_of(value)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return int(value.timestamp() * 1000)
    return value.bytes if isinstance(value, UUID) else value


@pytest.mark.slow
def test_every_answer_of_every_version_is_written_as_the_schemas_have_it() -> None:
    random = Random(3)
    for api, version in ANSWERS:
        schema = response_schema(api.key, version)
        for _ in range(4):
            message = any_message(schema, random)
            codes: list[int] = []
            written = messages.encode(api, version, plain_of(message), errors=codes)
            assert written == bytes_of(message), f"{api.name} {version}: {message}"
            assert codes == codes_of(message)


def codes_of(message: Any) -> list[int]:
    """Return all error codes other than 0, tagged ones last."""
    found: list[int] = []
    for field in sorted(fields(message), key=lambda each: each.metadata.get("tag", -1)):
        value = getattr(message, field.name)
        if field.metadata.get("kafka_type") == "error_code":
            found += [int(value)] if value else []
        for part in value if isinstance(value, tuple) else (value,):
            if hasattr(part, "__dataclass_fields__"):
                found += codes_of(part)
    return found


def test_fields_missing_from_a_version_are_omitted_and_unknown_fields_raise() -> None:
    (api,) = (api for api in APIS if api.key == 18)
    row = {"api_key": 18, "min_version": 0, "max_version": 4}
    body = {"error_code": 0, "api_keys": [row], "finalized_features_epoch": 7}
    assert messages.encode(api, 0, body) == bytes.fromhex("0000 00000001 0012 0000 0004")
    assert messages.encode(api, 1, body)[-4:] == bytes(4)
    assert messages.encode(api, 1, body, throttle_ms=9)[-1] == 9
    assert messages.encode(api, 3, body) == bytes.fromhex(
        "0000 02 0012 0000 0004 00 00000000 01 01 08 0000000000000007"
    )
    for wrong in ({"error_codes": 0}, {"api_keys": [{**row, "name": "x"}]}):
        with pytest.raises(AssertionError, match="has no"):
            messages.encode(api, 3, {**body, **wrong})
    with pytest.raises(AssertionError, match="lacks max_version"):
        messages.encode(api, 3, {"error_code": 0, "api_keys": [{"api_key": 1, "min_version": 0}]})


def test_number_that_does_not_fit_raises() -> None:
    (api,) = (api for api in APIS if api.key == 18)
    with pytest.raises(struct.error):
        messages.encode(api, 0, {"error_code": 1 << 15, "api_keys": []})


def test_missing_required_field_raises() -> None:
    (versions,) = (api for api in APIS if api.key == 18)
    (create,) = (api for api in APIS if api.key == 19)
    with pytest.raises(AssertionError, match="a required value is None"):
        messages.encode(versions, 3, {"error_code": 0, "api_keys": None})
    topic = {"name": None, "topic_id": bytes(16), "error_code": 0, "error_message": None}
    for version in (2, 7):
        with pytest.raises(AssertionError, match="a required value is None"):
            messages.encode(create, version, {"topics": [topic]})
        assert messages.encode(create, version, {"topics": [{**topic, "name": "t"}]})


def test_encoder_supports_every_type_of_field() -> None:
    for api, version in ANSWERS:
        schema = response_schema(api.key, version)
        assert StructEncoder(schema, None).names == tuple(field.name for field in fields(schema))
