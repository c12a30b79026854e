"""The Node.js example runs against a real node with another gRPC implementation and the public
proto files."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import quorumlog
from quorumlog.testing import Broker

from .node_packages import installed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "nodejs"
PAGE = ROOT / "docs" / "grpc.md"
ADDRESS = "127.0.0.1:9094"  # as in the page
WAIT_S = 90

pytestmark = pytest.mark.slow


@pytest.fixture
def address() -> Iterator[str]:
    """Start a broker and return its gRPC address."""
    with Broker() as broker:
        yield broker.grpc


def run_node(*arguments: str, code: str = "") -> str:
    """Run a program and return its output; the exit code must be 0 and stderr empty."""
    node, modules = installed(EXAMPLE)
    finished = subprocess.run(
        [node, *arguments],
        input=code,
        env={**os.environ, "NODE_PATH": str(modules), "QUORUMLOG_PROTO": str(ROOT / "proto")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return finished.stdout


def test_the_tour_makes_all_calls_and_decodes_every_error(address: str) -> None:
    assert run_node(str(EXAMPLE / "tour.js"), address).splitlines() == [
        "health: SERVING",
        "partitions: 3",
        "0: UA EWR to IAH",
        "1: UA EWR to DEN",
        "subscription: CANCELLED",
        "seen: LGA to ATL",
        "first: EWR to IAH",
        "deadline: DEADLINE_EXCEEDED",
        "NOT_FOUND UNKNOWN_TOPIC_OR_PARTITION 3 retriable: true",
        "INVALID_ARGUMENT INVALID_REQUEST 42 retriable: false",
        "undefined TypeError  retriable: undefined",
        "OK MESSAGE_TOO_LARGE 10 retriable: false",
        "OK UNKNOWN_TOPIC_OR_PARTITION 3 retriable: true",
        "ALREADY_EXISTS TOPIC_ALREADY_EXISTS 36 retriable: false",
        "NOT_FOUND NOT_FOUND  retriable: false",
        "deleted: UNKNOWN_TOPIC_OR_PARTITION",
    ]


SECURE = """
const fs = require('node:fs');
const { Client } = require(`${process.cwd()}/examples/nodejs/client.js`);
const { secured } = require(`${process.cwd()}/examples/nodejs/login.js`);
const [address, ca, password] = %s;
async function main() {
  for (const given of [password, 'wrong']) {
    const login = { ca: fs.readFileSync(ca), user: 'admin', password: given };
    const client = new Client(address, secured(address, login));
    try {
      await client.createTopic('t');
      await client.publish('t', [{ value: 'one' }]);
      for await (const record of client.subscribe('t', { end: 1 })) {
        console.log(record.value.toString());
      }
    } catch (failure) {
      console.log(failure.status);
    }
    client.close();
  }
}
main();
"""


def test_client_with_tls_and_a_password_is_served() -> None:
    with Broker(secure=True) as broker:
        address = broker.grpc.replace("127.0.0.1", "localhost")  # Node.js warns of addresses
        arguments = json.dumps([address, broker.ca_file, broker.password])
        assert run_node("-", code=SECURE % arguments).splitlines() == ["one", "UNAUTHENTICATED"]


def test_the_loop_with_transactions_counts_each_record_once(address: str) -> None:
    assert run_node(str(EXAMPLE / "transactions.js"), address).splitlines() == [
        "transactions before the crash: 2",
        "transactions after it: 2",
        "committed: ABCDEFGH",
        "stored: ABCDEFDEFGH",
        "fenced: PRODUCER_FENCED retriable: false",
    ]


def test_the_loop_with_transactions_ends_behind_markers(address: str) -> None:
    """The input was written in transactions, so that its last offset has no record."""
    with quorumlog.connect(address) as log:
        for name in ("in", "out"):
            log.admin.create_topic(name)
        with log.producer(transactional_id="in") as producer, producer.transaction():
            producer.send_many("in", ["a", "b", "c"])
        with log.consumer("in") as consumer:  # wait until the marker is written
            assert [record.text for record in consumer.records(max_records=3)] == ["a", "b", "c"]
        code = f"""
            const {{ Client }} = require('{EXAMPLE}/client');
            const {{ work }} = require('{EXAMPLE}/transactions');
            const log = new Client('{address}');
            const names = {{ group: 'upper', transactionalId: 'upper' }};
            work(log, 'in', 'out', names).then((turns) => {{ console.log(turns); log.close(); }});
        """
        assert run_node("-", code=code) == "2\n"
        with log.consumer("out") as consumer:
            assert [record.text for record in consumer.records(max_records=3)] == ["A", "B", "C"]
        stored = log.admin.describe_group("upper").offsets
        assert [each.committed for each in stored] == [4]


def test_the_quick_start_prints_the_documented_output(address: str) -> None:
    found = re.search(
        r"```javascript\n(.*?)```\n+It prints:\n+```text\n(.*?)```", PAGE.read_text(), re.S
    )
    assert found, "the page has a program and its output"
    code, printed = found.groups()
    assert run_node("-", code=code.replace(ADDRESS, address)) == printed


def test_the_lock_file_names_no_registry() -> None:
    """Its packages must install from any registry that the machine uses."""
    lock = json.loads((EXAMPLE / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all("integrity" in package for name, package in lock["packages"].items() if name)
