"""The encoding of the small text files, as Kafka's tools write them."""

import pytest

from quorumlog.errors import CorruptionError
from quorumlog.ids import ClusterId, DirectoryId, NodeId, TopicId
from quorumlog.storage import DirectoryMeta
from quorumlog.storage.checkpoints import (
    PartitionMeta,
    decode_epochs,
    decode_id,
    decode_meta,
    decode_offsets,
    decode_partition_metadata,
    encode_epochs,
    encode_id,
    encode_meta,
    encode_offsets,
    encode_partition_metadata,
)

ID = bytes(range(16))


def test_an_offset_checkpoint_has_a_version_a_count_and_sorted_entries() -> None:
    offsets = {"flights-1": 496, "a-b-0": 7, "flights-0": 8128}
    content = b"0\n3\na-b 0 7\nflights 0 8128\nflights 1 496\n"
    assert encode_offsets(offsets) == content
    assert decode_offsets(content) == offsets
    assert decode_offsets(encode_offsets({})) == {}


def test_an_epoch_checkpoint_has_epoch_and_start_offset() -> None:
    assert encode_epochs([(0, 0), (4, 17)]) == b"0\n2\n0 0\n4 17\n"
    assert decode_epochs(b"0\n2\n0 0\n4 17\n") == [(0, 0), (4, 17)]


@pytest.mark.parametrize(
    "content",
    [
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 7\n",
        b"0\n1\na 0\n",
        b"0\n1\na zero 7\n",
        b"0\nmany\na 0 7\n",
        b"\xff\xfe",
    ],
)
def test_corrupt_offset_checkpoint_is_rejected_with_its_path(content: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        decode_offsets(content, "some/path")
    assert caught.value.path == "some/path"


@pytest.mark.parametrize(
    "content", [b"0\n2\n1 0\n1 5\n", b"0\n2\n1 5\n2 4\n", b"0\n2\n1 5\n2 5\n", b"0\n1\n1 2 3\n"]
)
def test_epoch_checkpoint_out_of_order_is_rejected(content: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_epochs(content)


def test_meta_properties_round_trip_and_accept_files_of_kafka() -> None:
    meta = DirectoryMeta(
        cluster_id=ClusterId("MkU3OEVBNTcwNTJENDM2Qg"),
        node_id=NodeId(7),
        directory_id=DirectoryId(ID),
    )
    content = encode_meta(meta)
    assert content.splitlines() == [
        b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
        b"directory.id=AAECAwQFBgcICQoLDA0ODw",
        b"node.id=7",
        b"version=1",
    ]
    assert decode_meta(content) == meta
    assert decode_meta(b"#\n#Thu Jan 01 00:00:00 UTC 2026\n\n" + content + b"other=1\n") == meta


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"node.id=1\n",
        b"cluster.id=c\nnode.id=x\ndirectory.id=AAECAwQFBgcICQoLDA0ODw\n",
        b"x\n",
    ],
)
def test_incomplete_meta_properties_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_meta(content)


def test_partition_metadata_holds_the_topic_id() -> None:
    content = encode_partition_metadata(TopicId(ID))
    assert content == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert decode_partition_metadata(content) == PartitionMeta(topic_id=TopicId(ID))
    bounded = encode_partition_metadata(TopicId(ID), 2048)
    assert decode_partition_metadata(bounded).unsynced_bytes_max == 2048


@pytest.mark.parametrize(
    "line", [b"unsynced_bytes_max: 20", b"unsynced_bytes_max: x\n", b"unsyn: 1\n"]
)
def test_a_torn_bound_in_partition_metadata_is_none(line: bytes) -> None:
    """Half of its digits would be a lower bound than the node ever stored."""
    content = encode_partition_metadata(TopicId(ID)) + line
    assert decode_partition_metadata(content) == PartitionMeta(topic_id=TopicId(ID))


def test_partition_metadata_without_a_topic_id_is_refused() -> None:
    with pytest.raises(CorruptionError):
        decode_partition_metadata(b"version: 0\n")


def test_an_id_is_22_characters_of_base64url() -> None:
    assert decode_id(encode_id(ID)) == ID
    for wrong in ("", "AAEC", "!" * 22, "A" * 44):
        with pytest.raises(CorruptionError):
            decode_id(wrong)
