"""`quorumlog mirror` against real nodes: copies, promotes, shows, refuses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .shared_node import WAIT_S, invoke, start_dev, succeed


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gRPC address of the cluster that is copied to."""
    folder: Path = tmp_path_factory.mktemp("copies") / "data"
    with start_dev(folder, "--output", "json") as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["grpc"]
        finally:
            process.terminate()
            process.wait(WAIT_S)


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
    assert said == f"{topic} takes records now.\n"
    assert "no change" in succeed("mirror", "promote", topic, address=target)
    succeed("produce", topic, address=target, stdin="mine\n")
    code, said = mirror(address, target, topic)
    assert code != 0
    assert "is no mirror" in said


def test_a_mirror_needs_both_sides_and_a_pattern(address: str) -> None:
    assert invoke("mirror", "--from", address).exit_code == 2
    code, said = mirror(address, address, "(")
    assert code != 0
    assert "no regular expression" in said
