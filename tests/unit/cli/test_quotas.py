"""`quorumlog quotas`: changes, output and refusals."""

import json

import pytest
from tests.kit.command import invoke, succeed

ALTER = ("quotas", "alter")


def test_quotas_are_set_shown_and_deleted(address: str) -> None:
    alice = ("--user", "alice")
    rates = ("--set", "producer_byte_rate=1MiB", "--set", "request_percentage=12.5")
    said = succeed(*ALTER, *alice, *rates, address=address)
    assert said == "Quotas of user alice: producer_byte_rate=1MiB/s, request_percentage=12.5%.\n"
    both = ("--default-user", "--client-id", "etl")
    succeed(*ALTER, *both, "--set", "consumer_byte_rate=1000", address=address)
    table = succeed("quotas", "describe", address=address).splitlines()
    assert [line.split() for line in table if "MiB" in line or "etl" in line] == [
        ["(default)", "etl", "-", "1000B/s", "-"],
        ["alice", "-", "1MiB/s", "-", "12.5%"],
    ]
    shown = succeed("quotas", "describe", *alice, "-o", "json", address=address)
    assert json.loads(shown) == [
        {
            "entity": {"user": "alice"},
            "quotas": {"producer_byte_rate": 1 << 20, "request_percentage": 12.5},
        }
    ]
    gone = ("--delete", "producer_byte_rate", "--delete", "request_percentage")
    assert succeed(*ALTER, *alice, *gone, address=address) == "Quotas of user alice: none.\n"
    answer = succeed(*ALTER, *both, "--delete", "consumer_byte_rate", "-o", "json", address=address)
    assert json.loads(answer) == {
        "entity": {"user": None, "client_id": "etl"},
        "quotas": {},
        "validate_only": False,
    }
    nothing = succeed("quotas", "describe", address=address)
    assert nothing == "No quotas are set; clients are not limited.\n"


def test_validation_sets_nothing(address: str) -> None:
    change = (*ALTER, "--user", "bob", "--set", "producer_byte_rate=1")
    said = succeed(*change, "--validate-only", address=address)
    assert said == "The change is valid.\n"
    assert succeed("quotas", "describe", "--user", "bob", "-o", "json", address=address) == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--set", "producer_byte_rate=1"), "no entity"),
        (("--user", "a"), "nothing to change"),
        (("--user", "a", "--default-user", "--delete", "x"), "not both"),
        (("--user", "a", "--set", "producer_byte_rate"), "give NAME=VALUE"),
        (("--user", "a", "--set", "producer_byte_rate=1MB"), "ambiguous"),
        (("--user", "a", "--set", "request_percentage=much"), "give a number above 0"),
        (("--user", "a", "--set", "x=1", "--delete", "x"), "more than once"),
    ],
)
def test_invalid_arguments_are_refused_without_a_call(arguments: tuple[str, ...], why: str) -> None:
    result = invoke(*ALTER, *arguments)
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())


def test_what_the_cluster_refuses_is_an_error_of_the_command(address: str) -> None:
    result = invoke(*ALTER, "--user", "a", "--set", "producer_rate=5", address=address)
    assert result.exit_code == 1
    assert "unknown quota 'producer_rate'; quotas are consumer_byte_rate" in result.stderr
