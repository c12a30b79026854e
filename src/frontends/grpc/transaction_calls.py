"""The methods of the service `Transactions`: producer ids, and the transactions of producers.

Clients may send a request to any broker, which forwards it to the coordinator of the transactional
id; offsets go to the coordinator of their group, which adds its partition to the transaction.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...api.authorizer import Authorizer
from ...api.request_context import RequestContext
from ...api.transactions import NO_PRODUCER_ID, TransactionAdmin
from ...api.validation import (
    NAMES_MAX,
    PARTITIONS_MAX,
    check_partition,
    check_place_count,
    check_places,
)
from ...broker.groups.requests import CommitTransactionalOffsets, OffsetToCommit
from ...broker.groups.shell.coordinator import GroupCoordinator
from ...broker.shell.log_admin import LogAdmin
from ...errors import InvalidRequest, QuorumlogError
from ...ids import NodeId, ProducerIdentity
from ...metadata.acls import AclOperation, AclResourceType
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import errors_pb2, groups_pb2
from ...proto import transactions_pb2 as pb
from ...records.control import TransactionMarker
from ...runtime import CallContext, Runtime
from ...runtime.error_detail import encode_error
from ...services import (
    TRANSACTIONS_ABORT,
    TRANSACTIONS_ADD_OFFSETS,
    TRANSACTIONS_ADD_PARTITIONS,
    TRANSACTIONS_DESCRIBE,
    TRANSACTIONS_END,
    TRANSACTIONS_INIT_PRODUCER_ID,
    TRANSACTIONS_LIST,
)
from .call_forwarder import CallForwarder, ForwardedCall, check_text
from .group_calls import check_offsets, check_read
from .group_translation import read_commit, read_offset
from .translation import identity_message, read_identity

if TYPE_CHECKING:
    from ...broker.transactions.requests import ListedTransaction, TransactionDescription

ANY_AGE: Final = -1
_READ_TOPIC: Final = (AclOperation.READ, AclResourceType.TOPIC)
_READ_GROUP: Final = (AclOperation.READ, AclResourceType.GROUP)
_WRITE_ID: Final = (AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
"""The states with an age: the transaction is open, or has markers to write."""


class TransactionCalls:
    """The methods of the service `Transactions`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: TransactionAdmin,
        groups: GroupCoordinator,
        metadata: MetadataPublisher,
        log_admin: LogAdmin,
        authorizer: Authorizer,
        *,
        node_id: NodeId,
    ) -> None:
        self._transactions = transactions
        self._log_admin = log_admin
        self._authorizer = authorizer
        self._metadata = metadata
        self._node_id = node_id

        async def coordinator_of(transactional_id: str, deadline_ms: int) -> NodeId:
            return await transactions.coordinator_of(transactional_id, deadline_ms=deadline_ms)

        async def group_coordinator_of(group: str, deadline_ms: int) -> NodeId:
            return await groups.coordinator_of(group, deadline_ms=deadline_ms)

        self._forwarder = CallForwarder(
            runtime, metadata, node_id=node_id, coordinator_of=coordinator_of
        )
        self._group_forwarder = CallForwarder(
            runtime, metadata, node_id=node_id, coordinator_of=group_coordinator_of
        )

    # --- producers -----------------------------------------------------------------------------

    async def init_producer_id(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        """Return a producer id with its epoch; see `TransactionAdmin.init_producer_id`."""
        check_text("transactional_id", request.transactional_id)
        current = None
        if request.HasField("current") and request.current.producer_id != NO_PRODUCER_ID:
            current = read_identity(request.current)

        async def here() -> pb.InitProducerIdResponse:
            given = await self._transactions.init_producer_id(
                request.transactional_id, request.timeout_ms, current, self._context(context)
            )
            return pb.InitProducerIdResponse(producer=identity_message(given))

        if not request.transactional_id:
            return await here()
        self._check_write(request.transactional_id, context)
        return await self._forwarder.at_coordinator(
            TRANSACTIONS_INIT_PRODUCER_ID, request, context, request.transactional_id, here
        )

    async def add_partitions(
        self, request: pb.AddPartitionsRequest, context: CallContext
    ) -> pb.AddPartitionsResponse:
        """Add partitions to the transaction, all or none."""
        check_text("transactional_id", request.transactional_id)
        if not 1 <= len(request.partitions) <= PARTITIONS_MAX:
            raise InvalidRequest(
                f"partitions: {len(request.partitions)} entries; give 1..{PARTITIONS_MAX}"
            )
        for part in request.partitions:
            check_partition(part.topic, part.partition)
        self._check_write(request.transactional_id, context)

        async def here() -> pb.AddPartitionsResponse:
            errors = await self._transactions.add_partitions(
                request.transactional_id,
                read_identity(request.producer),
                [(part.topic, part.partition) for part in request.partitions],
                self._context(context),
            )
            return pb.AddPartitionsResponse(
                errors=[
                    _error_of(error, part)
                    for error, part in zip(errors, request.partitions, strict=True)
                    if error is not None
                ]
            )

        return await self._forwarder.at_coordinator(
            TRANSACTIONS_ADD_PARTITIONS, request, context, request.transactional_id, here
        )

    async def add_offsets(
        self, request: pb.AddOffsetsRequest, context: CallContext
    ) -> pb.AddOffsetsResponse:
        """Store a group's offsets until the transaction ends, each with its own result."""
        commit = request.commit
        check_text("transactional_id", request.transactional_id)
        check_text("commit.group", commit.group)
        check_text("commit.member_id", commit.member_id)
        check_offsets(commit.offsets)
        self._check_write(request.transactional_id, context)
        self._authorizer.check(context.client, *_READ_GROUP, commit.group)

        async def here() -> pb.AddOffsetsResponse:
            results = [groups_pb2.OffsetResult(offset=offset) for offset in commit.offsets]
            image, wanted = self._metadata.image, list[tuple[int, OffsetToCommit]]()
            for index, offset in enumerate(commit.offsets):
                try:
                    check_read(self._authorizer, image, offset, context)
                    wanted.append((index, read_offset(image, offset)))
                except QuorumlogError as refused:
                    results[index].error.CopyFrom(encode_error(refused))
            if wanted:
                plain = read_commit(commit, [offset for _, offset in wanted])
                stored = await self._transactions.commit_offsets(
                    CommitTransactionalOffsets(
                        group=plain.group,
                        member_id=plain.member_id,
                        generation=plain.generation,
                        offsets=plain.offsets,
                        transactional_id=request.transactional_id,
                        producer=read_identity(request.producer),
                        adds=True,
                    ),
                    self._context(context),
                )
                for (index, _), error in zip(wanted, stored.errors, strict=True):
                    if error is not None:
                        results[index].error.CopyFrom(encode_error(error))
            return pb.AddOffsetsResponse(results=results)

        return await self._group_forwarder.at_coordinator(
            TRANSACTIONS_ADD_OFFSETS, request, context, commit.group, here
        )

    async def end_transaction(
        self, request: pb.EndTransactionRequest, context: CallContext
    ) -> pb.EndTransactionResponse:
        """Commit or abort; return the identity for the next transaction, with a higher epoch."""
        check_text("transactional_id", request.transactional_id)
        self._check_write(request.transactional_id, context)

        async def here() -> pb.EndTransactionResponse:
            given = await self._transactions.end_transaction(
                request.transactional_id,
                read_identity(request.producer),
                self._context(context),
                commit=request.commit,
                bumps_epoch=True,
            )
            return pb.EndTransactionResponse(producer=identity_message(given))

        return await self._forwarder.at_coordinator(
            TRANSACTIONS_END, request, context, request.transactional_id, here
        )

    # --- operators -----------------------------------------------------------------------------

    async def list_transactions(
        self, request: pb.ListTransactionsRequest, context: CallContext
    ) -> pb.ListTransactionsResponse:
        """Return the transactional ids of all brokers; the response names those that failed."""
        if len(request.states) > NAMES_MAX:
            raise InvalidRequest(f"states: more than {NAMES_MAX} entries; give fewer")
        if context.is_forwarded:
            return await self._listed_here(request, context)
        answers, errors = await self._forwarder.at_all_brokers(
            "transactions",
            TRANSACTIONS_LIST,
            request,
            context,
            lambda: self._listed_here(request, context),
        )
        found = sorted(
            (line for answer in answers for line in answer.transactions),
            key=lambda line: line.transactional_id,
        )
        return pb.ListTransactionsResponse(transactions=found, errors=errors)

    async def describe_transactions(
        self, request: pb.DescribeTransactionsRequest, context: CallContext
    ) -> pb.DescribeTransactionsResponse:
        """Describe each transactional id, with its own result."""

        async def here(name: str) -> pb.TransactionDescription:
            found = await self._transactions.describe(name, self._context(context))
            return pb.TransactionDescription(transaction=_description(found, self._node_id))

        async def there(
            forward: ForwardedCall, names: Sequence[str]
        ) -> Iterable[pb.TransactionDescription]:
            asked = pb.DescribeTransactionsRequest(transactional_ids=names)
            return (await forward(TRANSACTIONS_DESCRIBE, asked)).results

        def check(name: str) -> None:
            self._transactions.listed_rights(AclOperation.DESCRIBE, name, context.client)

        names, is_here = request.transactional_ids, not self._transactions.has_ids
        found = await self._forwarder.at_coordinators(
            "transactional_ids",
            names,
            context,
            here,
            there,
            check=check,
            is_here=is_here,
        )
        return pb.DescribeTransactionsResponse(
            results=[
                pb.TransactionDescription(
                    transaction=pb.TransactionListing(transactional_id=name),
                    error=encode_error(each),
                )
                if isinstance(each, QuorumlogError)
                else each
                for name, each in zip(names, found, strict=True)
            ]
        )

    async def abort_transaction(
        self, request: pb.AbortTransactionRequest, context: CallContext
    ) -> pb.AbortTransactionResponse:
        """Abort an open transaction and fence its producer."""
        name = request.transactional_id
        check_text("transactional_id", name)
        self._transactions.listed_rights(AclOperation.WRITE, name, context.client)

        async def here() -> pb.AbortTransactionResponse:
            fencing = await self._transactions.abort(name, self._context(context))
            return pb.AbortTransactionResponse(producer=identity_message(fencing))

        if not self._transactions.has_ids:  # a look-up of the coordinator would create the topic
            return await here()
        return await self._forwarder.at_coordinator(
            TRANSACTIONS_ABORT, request, context, name, here
        )

    async def describe_producers(
        self, request: pb.DescribeProducersRequest, context: CallContext
    ) -> pb.DescribeProducersResponse:
        """Describe the producers with an id of partitions that this broker hosts."""
        check_place_count("partitions", len(request.partitions))
        check_places("partitions", [(each.topic, each.partition) for each in request.partitions])
        response = pb.DescribeProducersResponse()
        for part in request.partitions:
            check_partition(part.topic, part.partition)
            result = response.results.add(topic=part.topic, partition=part.partition)
            try:
                self._authorizer.check(context.client, *_READ_TOPIC, part.topic)
                producers = await self._log_admin.producers(part.topic, part.partition)
            except QuorumlogError as error:
                result.error.CopyFrom(_error_of(error, part))
                continue
            for each in sorted(producers, key=lambda producer: producer.producer_id):
                result.producers.add(
                    producer=identity_message(
                        ProducerIdentity(each.producer_id, each.producer_epoch)
                    ),
                    last_sequence=each.last_sequence,
                    last_timestamp_ms=each.last_timestamp_ms,
                    coordinator_epoch=each.coordinator_epoch,
                    transaction_start=each.transaction_start,
                )
        return response

    async def abort_hanging_transaction(
        self, request: pb.AbortHangingTransactionRequest, context: CallContext
    ) -> pb.AbortHangingTransactionResponse:
        """Write an abort marker to a partition that this broker leads."""
        part = request.partition
        check_partition(part.topic, part.partition)
        marker = TransactionMarker(
            producer=read_identity(request.producer),
            coordinator_epoch=max(0, request.coordinator_epoch),
            is_commit=False,
            transaction_version=0,  # the marker has the epoch of the open transaction
        )
        await self._transactions.write_marker(
            marker, part.topic, part.partition, self._context(context)
        )
        return pb.AbortHangingTransactionResponse()

    # --- internals -----------------------------------------------------------------------------

    async def _listed_here(
        self, request: pb.ListTransactionsRequest, context: CallContext
    ) -> pb.ListTransactionsResponse:
        states = {state.lower() for state in request.states}
        aged = request.open_for_ms_min > 0
        listed = await self._transactions.list_transactions(
            self._context(context),
            open_for_ms_min=request.open_for_ms_min if aged else ANY_AGE,
            states=OPEN_STATES if aged else (),
        )
        return pb.ListTransactionsResponse(
            transactions=[
                _listing(each, self._node_id)
                for each in listed
                if not states or each.state.lower() in states
            ]
        )

    def _check_write(self, transactional_id: str, context: CallContext) -> None:
        self._authorizer.check(context.client, *_WRITE_ID, transactional_id)

    def _context(self, context: CallContext) -> RequestContext:
        return RequestContext(
            self._forwarder.deadline_ms(context),
            client=context.client,
            check_session=context.check_session,
        )


def _error_of(error: QuorumlogError, part: groups_pb2.GroupPartition) -> errors_pb2.Error:
    """Return the error of a partition, with its name."""
    encoded = encode_error(error)
    if not encoded.topic:
        encoded.topic, encoded.partition = part.topic, part.partition
    return encoded


def _listing(transaction: "ListedTransaction", coordinator: NodeId) -> pb.TransactionListing:
    return pb.TransactionListing(
        transactional_id=transaction.transactional_id,
        producer=pb.ProducerIdentity(producer_id=transaction.producer_id, producer_epoch=-1),
        state=transaction.state,
        started_ms=transaction.started_ms,
        coordinator=coordinator,
    )


def _description(
    transaction: "TransactionDescription", coordinator: NodeId
) -> pb.TransactionListing:
    return pb.TransactionListing(
        transactional_id=transaction.transactional_id,
        producer=identity_message(transaction.producer),
        state=transaction.state,
        started_ms=transaction.started_ms,
        partitions=[
            groups_pb2.GroupPartition(topic=topic, partition=partition)
            for topic, partition in transaction.partitions
        ],
        timeout_ms=transaction.timeout_ms,
        coordinator=coordinator,
    )
