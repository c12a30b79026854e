"""`quorumlog mirror` with real nodes: copies, promotion, status, refusals."""

import json
from collections.abc import Iterator

import pytest
from tests.kit.command import dev_node, invoke, json_lines, succeed


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of another cluster."""
    with dev_node(tmp_path_factory.mktemp("copies") / "data", "--kafka-port", "0") as addresses:
        yield addresses


@pytest.fixture
def target(other: dict[str, str]) -> str:
    """The gRPC address of the target cluster."""
    return other["grpc"]


def mirror(source: str, target: str, topic: str, *more: str) -> tuple[int, str]:
    result = invoke("mirror", "--from", source, "--to", target, "--topics", topic, "--once", *more)
    return result.exit_code, result.output


@pytest.mark.slow
def test_a_topic_is_copied_shown_and_promoted(address: str, target: str, topic: str) -> None:
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    succeed("produce", topic, address=address, stdin="a\nb\n")
    code, said = mirror(address, target, topic)
    assert code == 0, said
    assert "1 of 1 partitions of 1 topics are caught up, lag 0; copied 2 records" in said
    refused = invoke("produce", topic, address=target, stdin="c\n")
    assert refused.exit_code != 0
    assert f"quorumlog mirror promote {topic}" in refused.output
    succeed("produce", topic, address=address, stdin="c\n")
    shown = succeed("mirror", "status", "--from", address, "-o", "json", address=target)
    (row,) = [each for each in json.loads(shown) if each["topic"] == topic]
    assert (row["copied_to"], row["source_end"], row["lag"]) == (2, 3, 1)
    assert topic in succeed("mirror", "status", address=target)
    said = succeed("mirror", "promote", topic, address=target)
    assert said == f"{topic} is promoted.\n"
    assert "unchanged" in succeed("mirror", "promote", topic, address=target)
    succeed("produce", topic, address=target, stdin="mine\n")
    code, said = mirror(address, target, topic)
    assert code != 0
    assert "is no mirror" in said


@pytest.mark.slow
def test_status_of_a_recreated_topic_does_not_apply_to_its_old_copy(
    address: str, target: str, topic: str
) -> None:
    """Otherwise the old copy would seem complete and be promoted."""
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    succeed("produce", topic, address=address, stdin="a\nb\n")
    assert mirror(address, target, topic)[0] == 0
    succeed("topics", "delete", topic, "--yes", address=address)
    succeed("topics", "create", topic, "--partitions", "1", address=address)
    succeed("produce", topic, address=address, stdin="new\n")
    shown = succeed("mirror", "status", "--from", address, "-o", "json", address=target)
    (row,) = [each for each in json.loads(shown) if each["topic"] == topic]
    assert (row["copied_to"], row["source_end"], row["lag"]) == (2, None, None)


def test_a_mirror_needs_both_sides_and_a_pattern(address: str) -> None:
    assert invoke("mirror", "--from", address).exit_code == 2
    code, said = mirror(address, address, "(")
    assert code != 0
    assert "not a regular expression" in said


@pytest.mark.slow
def test_topic_is_copied_from_a_kafka_cluster_and_resumed(
    address: str, other: dict[str, str], topic: str
) -> None:
    """Any server of the Kafka protocol will do: here it is another node of this project."""
    pytest.importorskip("confluent_kafka")
    source, there = f"kafka://{other['kafka']}", other["grpc"]
    succeed("topics", "create", topic, "--partitions", "1", address=there)
    lines = "".join(f'{{"key": "k{n}", "value": "{n}"}}\n' for n in range(100))
    succeed("produce", topic, "--format", "json", address=there, stdin=lines)
    code, said = mirror(source, address, topic)
    assert code == 0, said
    assert "copied 100 records" in said
    succeed("produce", topic, address=there, stdin="last\n")
    code, said = mirror(source, address, topic)
    assert code == 0, said
    assert "copied 1 records" in said
    read = ("consume", topic, "--until-end", "-o", "json")
    rows = [json_lines(succeed(*read, address=each)) for each in (there, address)]
    assert rows[0] == rows[1]
    assert len(rows[1]) == 101
