"""Kafka's dump tool reads `__transaction_state`: it prints transactional ids and skips staged
commits."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from quorumlog.broker.transactions.formats import encode
from quorumlog.broker.transactions.records import (
    AttemptState,
    FreeProducerId,
    StagedAttempt,
    StagedName,
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionState,
)
from quorumlog.records import Record, encode_batch

from .kafka_process import tool

pytestmark = pytest.mark.slow

TIME_MS = 1_750_000_000_000
EMPTY = TransactionMetadata(
    transactional_id="orders-1",
    producer_id=4711,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.EMPTY,
    updated_ms=TIME_MS,
)
ONGOING = replace(
    EMPTY,
    state=TransactionState.ONGOING,
    partitions=frozenset({("orders", 0), ("orders", 2), ("bills", 1)}),
    started_ms=TIME_MS,
)
REPLACING = replace(
    ONGOING,
    state=TransactionState.PREPARE_COMMIT,
    producer_epoch=32_767,
    last_producer_epoch=32_766,
    next_producer_id=4712,
    version=2,
)
REPLACED = replace(
    REPLACING,
    state=TransactionState.COMPLETE_COMMIT,
    partitions=frozenset(),
    producer_id=4712,
    previous_producer_id=4711,
    next_producer_id=-1,
    producer_epoch=0,
)
ATTEMPT = StagedAttempt(
    producer_id=9,
    producer_epoch=0,
    transactional_id="spark/q/",
    number=0,
    write_id=1,
    task=0,
    attempt=0,
    state=AttemptState.OPEN,
    timeout_ms=900_000,
    started_ms=TIME_MS,
)
STAGED = (
    StagedName(transactional_id="spark/q/", write_id=1, number=0, updated_ms=TIME_MS),
    ATTEMPT,
    FreeProducerId(producer_id=10, producer_epoch=1),
)
RECORDS = (EMPTY, *STAGED, ONGOING, REPLACING, REPLACED)
PAYLOAD = re.compile(r"payload: (\{.*\})$", re.MULTILINE)


def test_kafkas_tool_reads_transactional_ids_and_skips_staged_commits(tmp_path: Path) -> None:
    stored = [
        encode(record) for record in (*RECORDS, TransactionalIdForgotten(transactional_id="x"))
    ]
    batch = encode_batch(
        [Record(offset, TIME_MS, key, value) for offset, (key, value) in enumerate(stored)],
        leader_epoch=0,
    )
    path = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(batch)
    said = tool(
        "org.apache.kafka.tools.DumpLogSegments", f"--files={path}", "--transaction-log-decoder"
    )
    data = [json.loads(found)["data"] for found in PAYLOAD.findall(said)]
    assert [each["transactionStatus"] for each in data] == [0, 1, 2, 4], said
    assert data[0]["transactionPartitions"] is None
    assert data[1]["transactionPartitions"] == [
        {"topic": "bills", "partitionIds": [1]},
        {"topic": "orders", "partitionIds": [0, 2]},
    ]
    replacing, replaced = data[2:]
    assert (replacing["producerEpoch"], replacing["nextProducerId"]) == (32_767, 4712)
    assert (replaced["producerId"], replaced["previousProducerId"]) == (4712, 4711)
    assert replaced["clientTransactionVersion"] == 2
    assert said.count("Unknown record type") + said.count("skipping") >= len(STAGED), said
