"""Requests of a gRPC client with millions of entries are refused before they take memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.kafka_node import serving_kafka
from tests.kit.node import WAIT_MS
from tests.kit.waits import run_patiently

from quorumlog import simulation
from quorumlog.api.validation import PARTITIONS_MAX
from quorumlog.errors import InvalidRequest
from quorumlog.proto import groups_pb2, log_pb2, transactions_pb2
from quorumlog.runtime import REQUEST_BYTES_MAX, Method, Runtime
from quorumlog.services import (
    GROUPS_DELETE_OFFSETS,
    GROUPS_FETCH_OFFSETS,
    LOG_FETCH,
    LOG_LIST_OFFSETS,
    TRANSACTIONS_DESCRIBE_PRODUCERS,
)

from .grpc_requests import METHODS

FOR_RECORDS: Final = {"Log/Produce", "Log/Publish", "Mirror/Append"}

COUNTED: Final[tuple[tuple[Method[Any, Any], Any, Any], ...]] = (
    (LOG_FETCH, log_pb2.FetchRequest, log_pb2.FetchPartition),
    (LOG_LIST_OFFSETS, log_pb2.ListOffsetsRequest, log_pb2.ListOffsetsPartition),
    (GROUPS_FETCH_OFFSETS, groups_pb2.FetchOffsetsRequest, groups_pb2.GroupPartition),
    (GROUPS_DELETE_OFFSETS, groups_pb2.DeleteOffsetsRequest, groups_pb2.GroupPartition),
    (
        TRANSACTIONS_DESCRIBE_PRODUCERS,
        transactions_pb2.DescribeProducersRequest,
        groups_pb2.GroupPartition,
    ),
)


def test_only_methods_for_records_accept_large_requests() -> None:
    large = {path for path, each in METHODS.items() if each.request_bytes_max != REQUEST_BYTES_MAX}
    assert large == FOR_RECORDS


@pytest.mark.long
@pytest.mark.parametrize("run", [run_patiently, simulation.run])
def test_request_above_the_limit_of_its_method_is_not_parsed(
    run: Callable[[Any], Any], tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        folder = str(tmp_path) if run is run_patiently else "/node"
        async with serving_kafka(runtime, folder) as kafka:
            part = log_pb2.FetchPartition()
            request = log_pb2.FetchRequest(partitions=[part] * (REQUEST_BYTES_MAX // 2 + 1))
            with pytest.raises(InvalidRequest, match=f"the limit is {REQUEST_BYTES_MAX}"):
                await kafka.channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)

    run(main)


def test_partitions_are_counted_before_they_are_compared() -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, "/node") as kafka:
            for method, request, part in COUNTED:
                equal: Any = [part(topic="t")] * (PARTITIONS_MAX + 1)
                fields: dict[str, Any] = {"partitions": equal}
                if method.path.startswith("/quorumlog.v1.Groups"):
                    fields["group"] = "g"
                with pytest.raises(InvalidRequest, match=f"{PARTITIONS_MAX + 1} partitions"):
                    await kafka.channel.call(method, request(**fields), timeout_ms=WAIT_MS)

    simulation.run(main)
