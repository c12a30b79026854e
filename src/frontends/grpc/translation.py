"""Translation between the broker's values and the messages of `quorumlog.v1`. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from ...api.configs import ConfigDescription, ConfigSource
from ...api.partitions import PartitionStatus
from ...broker import DeletionOutcome, FetchOutcome, OffsetOutcome, ReplicaSize
from ...errors import QuorumlogError
from ...ids import ProducerIdentity
from ...metadata import INTERNAL_TOPICS, BrokerImage, TopicImage
from ...metadata.acls import AclOperation, AclResourceType, enum_of
from ...metadata.authorization import Action
from ...proto import admin_pb2, errors_pb2, log_pb2, metadata_records_pb2, transactions_pb2
from ...records import Codec, Record, decode_parts, encode_batch
from ...runtime.error_detail import encode_error

RECORD_OVERHEAD = 40  # upper bound of a record's encoding beside its key, value and headers
HEADER_OVERHEAD = 12  # the same for a header

_SOURCES: Final = {
    ConfigSource.UNSPECIFIED: admin_pb2.CONFIG_SOURCE_UNSPECIFIED,
    ConfigSource.DEFAULT: admin_pb2.CONFIG_SOURCE_DEFAULT,
    ConfigSource.TOPIC: admin_pb2.CONFIG_SOURCE_TOPIC,
    ConfigSource.FILE: admin_pb2.CONFIG_SOURCE_FILE,
    ConfigSource.ENVIRONMENT: admin_pb2.CONFIG_SOURCE_ENVIRONMENT,
    ConfigSource.FLAG: admin_pb2.CONFIG_SOURCE_FLAG,
    ConfigSource.CLUSTER: admin_pb2.CONFIG_SOURCE_CLUSTER,
}


def fill_error(
    message: errors_pb2.Error, error: QuorumlogError, topic: str = "", partition: int | None = None
) -> None:
    """Fill in an error, with the result's topic and partition if the error names none."""
    message.CopyFrom(encode_error(error))
    if topic and not message.topic:
        message.topic = topic
        if partition is not None:
            message.partition = partition


def identity_message(identity: ProducerIdentity) -> transactions_pb2.ProducerIdentity:
    """Return the message of a producer's identity."""
    return transactions_pb2.ProducerIdentity(
        producer_id=identity.producer_id, producer_epoch=identity.producer_epoch
    )


def read_identity(message: transactions_pb2.ProducerIdentity) -> ProducerIdentity:
    """Return the identity of a message, unchecked."""
    return ProducerIdentity(message.producer_id, message.producer_epoch)


def fill_fetch_result(result: log_pb2.FetchResult, outcome: FetchOutcome) -> None:
    """Fill in one partition's outcome, except its records."""
    spec = outcome.spec
    result.topic, result.partition = spec.topic, spec.partition
    result.high_watermark = outcome.high_watermark
    result.last_stable_offset = outcome.last_stable_offset
    result.log_start_offset = outcome.log_start_offset
    result.next_offset = outcome.next_offset if outcome.error is None else -1
    if outcome.preferred_replica is not None:
        result.preferred_replica = outcome.preferred_replica
    if outcome.error is not None:
        fill_error(result.error, outcome.error, spec.topic, spec.partition)


def offset_result(outcome: OffsetOutcome) -> log_pb2.ListOffsetsResult:
    """Translate one looked-up position."""
    spec = outcome.spec
    result = log_pb2.ListOffsetsResult(
        topic=spec.topic,
        partition=spec.partition,
        offset=outcome.offset,
        timestamp_ms=outcome.timestamp_ms,
        leader_epoch=outcome.leader_epoch,
    )
    if outcome.error is not None:
        fill_error(result.error, outcome.error, spec.topic, spec.partition)
    return result


def built_batch(request: log_pb2.PublishRequest, indexes: Sequence[int], *, wall_ms: int) -> bytes:
    """Build one record batch of the chosen plain records; those without a timestamp get `wall_ms`.

    May run in a thread: it only reads the request.
    """
    chosen = [request.records[index] for index in indexes]
    records = [
        Record(
            offset=index,
            timestamp_ms=record.timestamp_ms if record.HasField("timestamp_ms") else wall_ms,
            key=record.key if record.HasField("key") else None,
            value=record.value if record.HasField("value") else None,
            headers=tuple(
                (header.key, header.value if header.HasField("value") else None)
                for header in record.headers
            ),
        )
        for index, record in enumerate(chosen)
    ]
    if not request.HasField("producer"):
        return encode_batch(records, codec=Codec(request.compression))
    return encode_batch(
        records,
        codec=Codec(request.compression),
        producer_id=request.producer.producer_id,
        producer_epoch=request.producer.producer_epoch,
        base_sequence=request.base_sequence,
        is_transactional=bool(request.transactional_id),
    )


def decoded_responses(
    outcome: FetchOutcome,
    last: log_pb2.SubscribeResponse,
    *,
    start_offset: int,
    bytes_max: int,
) -> Iterator[log_pb2.SubscribeResponse]:
    """Decode the records of [start_offset, last.next_offset) into responses of at most `bytes_max`
    of records, but at least one record.

    Each response has the offset of the next one; the last one is `last`. One batch is decompressed
    at a time: only it and a part of its records are in memory.
    """
    size = 0
    response = log_pb2.SubscribeResponse()
    for records in decode_parts(
        outcome.records, start_offset=start_offset, end_offset=last.next_offset
    ):
        for record in records:
            needed = _size_of(record)
            if size and size + needed > bytes_max:
                response.next_offset = record.offset
                response.high_watermark = last.high_watermark
                response.metadata_offset = last.metadata_offset
                yield response
                response, size = log_pb2.SubscribeResponse(), 0
            _add_record(response, record)
            size += needed
    response.MergeFrom(last)
    yield response


def _size_of(record: Record) -> int:
    """Return an upper estimate of a record's encoded size."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(
        HEADER_OVERHEAD + len(name) * 4 + len(value or b"") for name, value in record.headers
    )


def broker_description(broker: BrokerImage) -> admin_pb2.BrokerDescription:
    """Describe a registered broker."""
    return admin_pb2.BrokerDescription(
        id=broker.id,
        grpc_address=broker.grpc_address,
        rack=broker.rack,
        fenced=broker.fenced,
        broker_epoch=broker.epoch,
        stopping=broker.stopping,
        kafka_listeners=[
            metadata_records_pb2.KafkaListener(name=name, address=address)
            for name, address in broker.kafka_listeners
        ],
    )


def topic_listing(topic: TopicImage) -> admin_pb2.TopicListing:
    """Return a topic with its size."""
    return admin_pb2.TopicListing(
        name=topic.name,
        topic_id=topic.id,
        partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        is_internal=topic.name in INTERNAL_TOPICS,
    )


def config_description(config: ConfigDescription) -> admin_pb2.ConfigDescription:
    """Translate a config with its declaration."""
    return admin_pb2.ConfigDescription(
        name=config.name,
        value=config.value,
        default_value=config.default_value,
        source=_SOURCES[config.source],
        place=config.place,
        type=config.type,
        unit=config.unit,
        low=config.low,
        high=config.high,
        choices=config.choices,
        doc=config.doc,
        changes=config.changes,
    )


def replicas_description(status: PartitionStatus) -> admin_pb2.ReplicasDescription:
    """Translate the replicas of one partition."""
    described = admin_pb2.ReplicasDescription(topic=status.topic, partition=status.partition)
    if status.error is not None:
        fill_error(described.error, status.error, status.topic, status.partition)
        return described
    described.high_watermark = status.high_watermark
    described.min_isr = status.min_isr
    described.replicas.extend(
        admin_pb2.ReplicaDescription(
            broker=each.node_id,
            log_end_offset=each.log_end_offset,
            caught_up_ms_ago=each.caught_up_ms_ago,
            in_sync=each.in_sync,
            reason=each.reason,
        )
        for each in status.replicas
    )
    return described


def _add_record(response: log_pb2.SubscribeResponse, record: Record) -> None:
    message = response.records.add(timestamp_ms=record.timestamp_ms, offset=record.offset)
    if record.key is not None:
        message.key = record.key
    if record.value is not None:
        message.value = record.value
    for name, value in record.headers:
        header = message.headers.add(key=name)
        if value is not None:
            header.value = value


def log_description(size: ReplicaSize) -> admin_pb2.LogDescription:
    """Translate the size of one partition."""
    described = admin_pb2.LogDescription(
        topic=size.topic,
        partition=size.partition,
        size_bytes=size.size_bytes,
        log_start_offset=size.log_start_offset,
        log_end_offset=size.log_end_offset,
    )
    if size.error is not None:
        fill_error(described.error, size.error, size.topic, size.partition)
    return described


def deletion_result(outcome: DeletionOutcome) -> admin_pb2.DeleteRecordsResult:
    """Translate one partition's new log start offset."""
    spec = outcome.spec
    result = admin_pb2.DeleteRecordsResult(
        topic=spec.topic, partition=spec.partition, log_start_offset=outcome.log_start_offset
    )
    if outcome.error is not None:
        fill_error(result.error, outcome.error, spec.topic, spec.partition)
    return result


def read_action(request: admin_pb2.ExplainAuthorizationRequest) -> Action:
    """Return the action of a request, unchecked except for its numbers; raise InvalidRequest for an
    unknown one."""
    return Action(
        request.principal,
        request.host,
        enum_of(AclOperation, request.operation),
        enum_of(AclResourceType, request.resource_type),
        request.resource_name,
    )
