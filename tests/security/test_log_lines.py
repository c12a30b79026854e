"""Names with line ends and control characters: none begins a line of the node's log or of the audit
log."""

import json
import re
from pathlib import Path
from typing import Any, Final

from tests.kit.kafka_client import ConnectionEnded, connected
from tests.kit.node_process import NodeProcess, free_port
from tests.kit.waits import run_patiently
from tests.unit.frontends.kafka.named_requests import request_about

from quorumlog.frontends.kafka.apis import APIS
from quorumlog.runtime import Runtime

FORGED: Final = "x\n2026-01-01 00:00:00,000 ERROR node.forged\r\n\x1b[2J\x00\u2028\u202e"
METADATA, HANDSHAKE, API_VERSIONS = 3, 17, 18
LINE_MAX: Final = 2_000  # characters
A_LINE: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ \S")


async def attack(runtime: Runtime, address: str, key: int, version: int, body: Any) -> None:
    """Send a request of a client with such a name."""
    async with connected(runtime, address) as client:
        client.send_body(key, version, body, client_id=FORGED)
        try:
            await client.frame()
        except ConnectionEnded:
            return


async def end_with_long_names(runtime: Runtime, address: str) -> None:
    """Send the longest names of a software before the login, and a request that needs it."""
    async with connected(runtime, address) as client:
        body = request_about(API_VERSIONS, 3, "x" * 17_000, bytes(16))
        client.send_body(API_VERSIONS, 3, body)
        await client.frame()
        client.send_body(METADATA, 9, request_about(METADATA, 9, "x", bytes(16)))
        await client.ended()


def test_no_name_begins_a_line_of_a_log(tmp_path: Path) -> None:
    plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    audit = tmp_path / "audit.log"
    node = NodeProcess(
        tmp_path / "node",
        settings={
            "listeners.kafka": [f"PLAINTEXT://{plain}", f"SASL_PLAINTEXT://{sasl}"],
            "super.users": ["User:ANONYMOUS"],
            "audit.log.file": str(audit),
        },
        environment={"QUORUMLOG_LOG": "DEBUG"},
    )

    async def main(runtime: Runtime) -> None:
        await end_with_long_names(runtime, sasl)
        for api in APIS:
            body = request_about(api.key, api.high, FORGED, bytes(15) + b"\x01")
            await attack(runtime, plain, api.key, api.high, body)
        for name in (FORGED, "x" * 30_000):
            body = request_about(HANDSHAKE, 1, name, bytes(16))
            await attack(runtime, sasl, HANDSHAKE, 1, body)
        body = request_about(API_VERSIONS, 3, FORGED, bytes(16))
        await attack(runtime, sasl, API_VERSIONS, 3, body)

    with node:
        run_patiently(main)
        assert node.stop() == 0
    lines = node.complaints().split("\n")
    assert any("kafka.connection_ended" in line for line in lines)
    assert any(f"software={'x' * 64}/{'x' * 64} " in line for line in lines)
    forged = [line for line in lines if line and not A_LINE.match(line)]
    assert not forged, forged[:3]
    assert max(map(len, lines)) < LINE_MAX
    assert not [line for line in lines if any(char in line for char in "\r\x1b\0\u2028\u202e")]
    rows = [json.loads(line) for line in audit.read_text().split("\n") if line]
    assert any("node.forged" in json.dumps(row) for row in rows)
