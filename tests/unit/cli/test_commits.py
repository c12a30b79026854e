"""`quorumlog commits` and `transactions` with staged commits."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.command import answer_prompt, invoke, succeed

import quorumlog


@pytest.fixture
def staged(address: str, topic: str) -> Iterator[quorumlog.Log]:
    """A client and a name, equal to the topic, with batch 3 committed and an attempt of batch 4."""
    with quorumlog.connect(address) as log:
        log.admin.create_topic(topic)
        for number in (3, 4):
            write = log.open_write(topic, number)
            with log.staged_producer(write, 0) as producer:
                producer.send(topic, "a")
                producer.send(topic, "b")
                result = producer.seal()
            if number == 3:
                log.commit_write(write, [result])
        yield log


def described(address: str, name: str) -> dict[str, Any]:
    found = json.loads(succeed("commits", "describe", name, "-o", "json", address=address))
    return dict(found)


def test_names_are_listed_and_described(address: str, topic: str, staged: quorumlog.Log) -> None:
    listed = json.loads(succeed("commits", "list", "-o", "json", address=address))
    (mine,) = [each for each in listed if each["name"] == topic]
    assert (mine["last_committed"], mine["committed_records"], mine["number"]) == (3, 2, 4)
    assert (mine["open"], mine["sealed"], mine["completing"]) == (0, 1, 0)
    assert topic in succeed("commits", "list", address=address)
    found = described(address, topic)
    (attempt,) = found["attempts"]
    assert (attempt["task"], attempt["state"], attempt["records"]) == (0, "Sealed", 2)
    assert found["partitions"] == [[topic, 0]]
    text = succeed("commits", "describe", topic, address=address)
    assert text.startswith(f"Staged commits {topic}: last batch 3, 2 records of write ")
    assert "Sealed" in text
    assert "\nPartitions that readers wait for:\n" in text


def test_attempts_are_listed_as_transactions_and_aborted_by_name(
    address: str, topic: str, staged: quorumlog.Log
) -> None:
    listed = json.loads(succeed("transactions", "list", "-o", "json", address=address))
    (name,) = [
        each["transactional_id"]
        for each in listed
        if each["transactional_id"].startswith(f"{topic}#")
    ]
    shown = json.loads(succeed("transactions", "describe", name, "-o", "json", address=address))
    assert (shown["state"], shown["partitions"]) == ("Ongoing", [[topic, 0]])
    refused = invoke("transactions", "describe", topic, address=address)
    assert refused.exit_code == 1
    assert f"run `quorumlog commits describe {topic}`" in refused.output
    write_id = described(address, topic)["write_id"]
    code, shown = answer_prompt(b"n\n", "transactions", "abort", topic, address=address)
    assert code == 1
    assert f"write {write_id} of the staged commits {topic} was not aborted: not confirmed" in shown
    assert described(address, topic)["sealed"] == 1
    assert succeed("transactions", "abort", topic, "--yes", address=address) == (
        f"Aborted write {write_id} of the staged commits {topic}.\n"
    )
    assert described(address, topic)["sealed"] == 0
    assert invoke("transactions", "abort", f"{topic}s", "--yes", address=address).exit_code == 1


def test_explain_names_the_commits_that_readers_wait_for(
    address: str, topic: str, staged: quorumlog.Log
) -> None:
    text = succeed("explain", "lso", topic, address=address)
    assert f"a task attempt of the staged commits {topic} is open from 3" in text
    assert f"`quorumlog transactions abort {topic}`" in text


def test_reset_and_delete_of_a_name(address: str, topic: str, staged: quorumlog.Log) -> None:
    refused = invoke("commits", "delete", topic, "--yes", address=address)
    assert refused.exit_code == 1
    assert f"quorumlog transactions abort {topic}" in refused.output
    output = succeed("commits", "reset", topic, "--to", "2", "--yes", address=address)
    assert output == f"The last batch of {topic} was 3 and is 2.\n"
    found = described(address, topic)
    assert (found["last_committed"], found["committed_write_id"], found["sealed"]) == (2, None, 0)
    write = staged.open_write(topic, 3)
    with staged.staged_producer(write, 0) as producer:
        producer.send(topic, "again")
        result = producer.seal()
    assert staged.commit_write(write, [result]) is not None
    output = succeed("commits", "delete", topic, "--yes", "-o", "json", address=address)
    assert json.loads(output) == {"deleted": topic}
    for command in (("describe", topic), ("reset", topic, "--to", "0"), ("delete", topic, "--yes")):
        result_of = invoke("commits", *command, address=address)
        assert result_of.exit_code == 1
        assert f"staged commits {topic}: the name does not exist; " in result_of.output
    assert invoke("commits", "reset", topic, "--to", "-2", address=address).exit_code == 2
