"""Manifests are untrusted: for any bytes, decoding returns a manifest that satisfies every
relation, or raises BackupDamaged."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.backup.samples import BACKUP, group, manifest, stored, topic

from quorumlog.backup.manifest import (
    MANIFEST_BYTES_MAX,
    VALUES_MAX,
    Manifest,
    decode_manifest,
    encode_manifest,
    parse_range_path,
    range_path,
)
from quorumlog.errors import BackupDamaged, InvalidRequest
from quorumlog.records.checksum import crc32c

SAMPLE = manifest(
    topic("orders", 1, stored(0, 10), stored(10, 20)),
    topic("users", 2, stored(5, 6)),
    groups=(group("g", "orders", 0, 12),),
)
TREE = json.loads(msgspec.json.encode(SAMPLE))

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64]),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["../x", "/etc/passwd", ".", "..", "__consumer_offsets", "a\x00b", "a\n"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def sealed(tree: Any) -> bytes:
    """Return the bytes of a manifest with a valid checksum."""
    raw = json.dumps(tree).encode()
    return b'{"crc32c":%d,"manifest":%s}' % (crc32c(raw), raw)


def paths_of(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            found += paths_of(value, (*at, key))
    return found


def replaced(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


def check(found: Manifest) -> None:
    """Check every relation that a restore needs."""
    assert found.backup == BACKUP
    names = {each.name: each for each in found.topics}
    assert len(names) == len(found.topics)
    for each in found.topics:
        assert "/" not in each.name
        assert each.name not in (".", "..")
        assert not each.name.startswith("__")
        for partition in each.partitions:
            at = None
            assert partition.start <= partition.end
            for part in partition.ranges:
                assert part.first < part.end <= partition.end
                assert part.end > partition.start
                assert (part.first <= partition.start) if at is None else (part.first == at)
                at = part.end
    for named in found.groups:
        for offset in named.offsets:
            assert offset.partition < len(names[offset.topic].partitions)
    for entry, index, part in found.data_objects():
        assert parse_range_path(range_path(entry.id, index, part)) == (entry.id, index, part)


def decoded(content: bytes) -> Manifest | None:
    try:
        return decode_manifest(content, BACKUP)
    except BackupDamaged:
        return None


def test_a_manifest_survives_its_encoding() -> None:
    assert decode_manifest(encode_manifest(SAMPLE), BACKUP) == SAMPLE
    check(SAMPLE)


@given(st.sampled_from(paths_of(TREE)), VALUES)
def test_any_changed_field_is_rejected_or_harmless(path: tuple[Any, ...], value: Any) -> None:
    found = decoded(sealed(replaced(TREE, path, value)))
    if found is not None:
        check(found)


@given(st.integers(0, len(encode_manifest(SAMPLE)) - 1), st.integers(0, 255))
def test_a_changed_byte_is_rejected(position: int, byte: int) -> None:
    content = bytearray(encode_manifest(SAMPLE))
    if content[position] == byte:
        return
    content[position] = byte
    assert decoded(bytes(content)) in (None, SAMPLE)  # a space may become another one


@given(st.binary(max_size=200))
def test_any_bytes_are_rejected(content: bytes) -> None:
    assert decoded(content) is None


def test_deep_nesting_is_rejected() -> None:
    assert decoded(b'{"crc32c":0,"manifest":' + b"[" * 200_000 + b"}") is None


def test_many_small_values_are_refused_before_they_are_decoded() -> None:
    """Each of these values takes 2 bytes in the manifest, and more than 50 once it is decoded."""
    users = b'{"users":[%s],"acls":[],"quotas":[]}' % b",".join([b'""'] * (VALUES_MAX + 1))
    raw = msgspec.json.encode(SAMPLE).replace(b'"access":null', b'"access":' + users)
    content = b'{"crc32c":%d,"manifest":%s}' % (crc32c(raw), raw)
    assert len(content) < MANIFEST_BYTES_MAX / 2
    with pytest.raises(BackupDamaged, match=rf"values; the limit is {VALUES_MAX}; .* --topics"):
        decode_manifest(content, BACKUP)


def test_cluster_with_more_values_than_a_manifest_may_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = encode_manifest(SAMPLE)
    monkeypatch.setattr("quorumlog.backup.manifest.VALUES_MAX", content.count(b",") - 1)
    with pytest.raises(InvalidRequest, match=r"values; the limit is .* --topics"):
        encode_manifest(SAMPLE)


@given(st.text(max_size=120))
def test_a_path_is_parsed_only_in_its_canonical_form(path: str) -> None:
    found = parse_range_path(path)
    assert found is None or range_path(*found) == path
