"""The API keys with modules that are imported at the first request: those of consumer groups,
transactions and security."""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from ..api import (
    Answer,
    AnswerAtOnce,
    AtOnce,
    Begin,
    BrokerContext,
    Call,
    Client,
    Done,
    Handle,
    KafkaApi,
    Read,
)
from ..request_limits import ELEMENTS_MAX_OF_OFFSETS


@cache
def _module(name: str) -> ModuleType:
    return import_module(f"{__package__}.{name}")


def _later(module: str) -> Handle:
    """Return a handler that imports the `handle` of a module of this folder at its first call."""

    async def handle(broker: BrokerContext, call: Call) -> Answer:
        answer: Answer = await _module(module).handle(broker, call)
        return answer

    handle.__module__ = f"{__package__}.{module}"
    return handle


def _read_later(module: str) -> Read:
    """Return a reader that imports the `read` of such a module."""

    def read(version: int, body: memoryview) -> Any:
        return _module(module).read(version, body)

    return read


def _begin_later(module: str) -> Begin:
    """Return a function that imports the `begin` of such a module."""

    def begin(broker: BrokerContext, call: Call, done: Done) -> bool:
        is_begun: bool = _module(module).begin(broker, call, done)
        return is_begun

    return begin


def _at_once_later(module: str) -> AtOnce:
    """Return a function that imports the `at_once` of such a module."""
    found: AtOnce | None = None

    def at_once(
        broker: BrokerContext, client: Client, version: int, body: memoryview
    ) -> AnswerAtOnce:
        nonlocal found
        if found is None:
            found = _module(module).at_once
        return found(broker, client, version, body)

    return at_once


GROUP_APIS: Final[tuple[KafkaApi, ...]] = (
    KafkaApi(
        key=8,
        name="OffsetCommit",
        low=2,
        high=10,
        flexible=8,
        handle=_later("offset_commit"),
        read=_read_later("offset_commit"),
        begin=_begin_later("offset_commit"),
        at_once=_at_once_later("offset_commit"),
        elements_max=ELEMENTS_MAX_OF_OFFSETS,
    ),
    KafkaApi(
        key=9,
        name="OffsetFetch",
        low=1,
        high=10,
        flexible=6,
        handle=_later("offset_fetch"),
        elements_max=ELEMENTS_MAX_OF_OFFSETS,
    ),
    KafkaApi(
        key=11,
        name="JoinGroup",
        low=0,
        high=9,
        flexible=6,
        handle=_later("join_group"),
        waits_for_others=True,
    ),
    KafkaApi(
        key=12,
        name="Heartbeat",
        low=0,
        high=4,
        flexible=4,
        handle=_later("heartbeat"),
        read=_read_later("heartbeat"),
        begin=_begin_later("heartbeat"),
        at_once=_at_once_later("heartbeat"),
    ),
    KafkaApi(key=13, name="LeaveGroup", low=0, high=5, flexible=4, handle=_later("leave_group")),
    KafkaApi(
        key=14,
        name="SyncGroup",
        low=0,
        high=5,
        flexible=4,
        handle=_later("sync_group"),
        waits_for_others=True,
    ),
    KafkaApi(
        key=15, name="DescribeGroups", low=0, high=6, flexible=5, handle=_later("describe_groups")
    ),
    KafkaApi(key=16, name="ListGroups", low=0, high=5, flexible=3, handle=_later("list_groups")),
    KafkaApi(
        key=42, name="DeleteGroups", low=0, high=2, flexible=2, handle=_later("delete_groups")
    ),
    KafkaApi(
        key=47, name="OffsetDelete", low=0, high=0, flexible=1, handle=_later("offset_delete")
    ),
    KafkaApi(
        key=68,
        name="ConsumerGroupHeartbeat",
        low=0,
        high=1,
        flexible=0,
        handle=_later("consumer_group_heartbeat"),
        read=_read_later("consumer_group_heartbeat"),
        begin=_begin_later("consumer_group_heartbeat"),
        at_once=_at_once_later("consumer_group_heartbeat"),
    ),
    KafkaApi(
        key=69,
        name="ConsumerGroupDescribe",
        low=0,
        high=1,
        flexible=0,
        handle=_later("consumer_group_describe"),
    ),
)
"""By ascending key."""

TRANSACTION_APIS: Final[tuple[KafkaApi, ...]] = (
    KafkaApi(
        key=24,
        name="AddPartitionsToTxn",
        low=0,
        high=5,
        flexible=3,
        handle=_later("add_partitions_to_txn"),
        elements_max=10_000,
    ),
    KafkaApi(
        key=25,
        name="AddOffsetsToTxn",
        low=0,
        high=4,
        flexible=3,
        handle=_later("add_offsets_to_txn"),
    ),
    KafkaApi(key=26, name="EndTxn", low=0, high=5, flexible=3, handle=_later("end_txn")),
    KafkaApi(
        key=27,
        name="WriteTxnMarkers",
        low=1,
        high=2,
        flexible=1,
        handle=_later("write_txn_markers"),
        elements_max=5_000,  # tools send one marker
    ),
    KafkaApi(
        key=28,
        name="TxnOffsetCommit",
        low=0,
        high=5,
        flexible=3,
        handle=_later("txn_offset_commit"),
        elements_max=ELEMENTS_MAX_OF_OFFSETS,
    ),
    KafkaApi(
        key=65,
        name="DescribeTransactions",
        low=0,
        high=0,
        flexible=0,
        handle=_later("describe_transactions"),
    ),
    KafkaApi(
        key=66,
        name="ListTransactions",
        low=0,
        high=2,
        flexible=0,
        handle=_later("list_transactions"),
    ),
)
"""By ascending key."""

SECURITY_APIS: Final[tuple[KafkaApi, ...]] = (
    KafkaApi(
        key=17,
        name="SaslHandshake",
        low=1,
        high=1,
        flexible=2,
        handle=_later("sasl_handshake"),
        advertised_low=0,  # librdkafka uses SASL only with a broker that lists version 0
        waits_for_others=True,
    ),
    KafkaApi(
        key=29,
        name="DescribeAcls",
        low=1,
        high=3,
        flexible=2,
        handle=_later("describe_acls"),
    ),
    KafkaApi(
        key=30,
        name="CreateAcls",
        low=1,
        high=3,
        flexible=2,
        handle=_later("create_acls"),
    ),
    KafkaApi(
        key=31,
        name="DeleteAcls",
        low=1,
        high=3,
        flexible=2,
        handle=_later("delete_acls"),
    ),
    KafkaApi(
        key=36,
        name="SaslAuthenticate",
        low=0,
        high=2,
        flexible=2,
        handle=_later("sasl_authenticate"),
        waits_for_others=True,
    ),
    KafkaApi(
        key=50,
        name="DescribeUserScramCredentials",
        low=0,
        high=0,
        flexible=0,
        handle=_later("describe_user_scram_credentials"),
    ),
    KafkaApi(
        key=51,
        name="AlterUserScramCredentials",
        low=0,
        high=0,
        flexible=0,
        handle=_later("alter_user_scram_credentials"),
        elements_max=5_000,  # each takes two HMACs
    ),
)
