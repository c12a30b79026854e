"""KafkaJS over TLS with a password, against a secure broker."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.client_security import ClientSecurity

import quorumlog
from quorumlog.testing import Broker

from .node_packages import installed

PINNED: Final = Path(__file__).parents[1] / "conformance" / "programs" / "kafkajs"
TOPIC: Final = "allowed"
PROGRAM: Final = """
const { Kafka, logLevel } = require('kafkajs')
const { bootstrap, security, topic } = JSON.parse(process.argv[2])
const kafka = new Kafka({
  brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 2 }, ...security,
})

async function main() {
  const producer = kafka.producer()
  await producer.connect()
  const messages = [{ value: 'one' }, { value: 'two' }]
  await producer.send({ topic, messages })
  await producer.send({ topic: 'denied', messages }).catch(error => console.log(error.cause.type))
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise(resolve => consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString())
      if (message.value.toString() === 'two') resolve()
    },
  }))
  await consumer.disconnect()
}
main().catch(error => console.log(error.name))
"""
WAIT_S: Final = 90

pytestmark = pytest.mark.slow


def run_kafkajs(broker: Broker, security: ClientSecurity, topic: str) -> list[str]:
    """Run the program; return the lines that it prints."""
    node, modules = installed(PINNED)
    given: dict[str, Any] = {
        "bootstrap": broker.kafka,
        "security": security.kafkajs(),
        "topic": topic,
    }
    finished = subprocess.run(
        [node, "-", json.dumps(given)],
        input=PROGRAM,
        env={**os.environ, "NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafkajs_logs_in_with_a_password(mechanism: str) -> None:
    with Broker(secure=True) as broker:
        broker.create_topic(TOPIC)
        with broker.connect() as admin:
            admin.admin.set_password("alice", "secret")
            admin.admin.create_acls(
                [
                    quorumlog.Acl(
                        principal="User:alice", operation="All", resource_type=kind, resource=TOPIC
                    )
                    for kind in ("Topic", "Group")
                ]
            )
        right, wrong = (
            ClientSecurity(ca=broker.ca_file, user="alice", password=given, mechanism=mechanism)
            for given in ("secret", "wrong")
        )
        assert run_kafkajs(broker, right, TOPIC) == ["TOPIC_AUTHORIZATION_FAILED", "one", "two"]
        assert run_kafkajs(broker, wrong, TOPIC) == ["KafkaJSSASLAuthenticationError"]
