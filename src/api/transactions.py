"""Transactions (KIP-98) and producer ids: the operations of producers, brokers and operators.

A transactional id is served by its coordinator; another broker raises NotCoordinator.
"""

import dataclasses
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ..broker.groups.config import OFFSETS_TOPIC
from ..broker.shell.producer_ids import ProducerIds
from ..errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidPattern,
    InvalidRequest,
    OperationNotAttempted,
    QuorumlogError,
    TransactionalIdNotFound,
)
from ..ids import NodeId, ProducerIdentity
from ..metadata.acls import AclOperation, AclResourceType
from ..runtime import ClientIdentity, Clock
from ..staged_names import split_attempt_id
from .authorizer import Authorizer
from .metadata_access import MetadataAccess
from .request_context import RequestContext

if TYPE_CHECKING:
    from ..broker.groups.requests import CommitOutcome, CommitTransactionalOffsets
    from ..broker.groups.shell import GroupCoordinator
    from ..broker.shell.markers import PartitionMarkers
    from ..broker.transactions.requests import (
        ListedTransaction,
        TransactionDescription,
        TransactionRequest,
    )
    from ..broker.transactions.shell import TransactionCoordinator
    from ..records.control import TransactionMarker

PRODUCER_EPOCH_MAX: Final = 2**15 - 1  # a 16-bit field of batches
NO_PRODUCER_ID: Final = -1

_READ_TOPIC: Final = (AclOperation.READ, AclResourceType.TOPIC)
_WRITE_TOPIC: Final = (AclOperation.WRITE, AclResourceType.TOPIC)
_DESCRIBE_TOPIC: Final = (AclOperation.DESCRIBE, AclResourceType.TOPIC)
_DESCRIBE_ID: Final = (AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)

MATCH_STEPS_MAX: Final = 50_000_000
"""Characters of transactional ids times instructions of a pattern: about 0.25 s."""

R = TypeVar("R")


class TransactionAdmin:
    """The operations of producers with an id, and of their transactions."""

    def __init__(
        self,
        clock: Clock,
        metadata: MetadataAccess,
        authorizer: Authorizer,
        ids: ProducerIds,
        transactions: "TransactionCoordinator",
        groups: "GroupCoordinator",
        markers: "PartitionMarkers",
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._authorizer = authorizer
        self._ids = ids
        self._transactions = transactions
        self._groups = groups
        self._markers = markers

    # --- producers --------------------------------------------------------------------------------

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        current: ProducerIdentity | None,
        context: RequestContext,
    ) -> ProducerIdentity:
        """Return the identity of a producer. `current` is its present one, None for a new producer.

        With a transactional id, earlier producers of the id are fenced; `timeout_ms` is the timeout
        of its transactions. Without one (empty), the identity is a new id with epoch 0, or the next
        epoch of `current`, or a new id once the epochs are used up.
        """
        if current is not None:
            _check_producer("current", current)
        self._check_init(transactional_id, context)
        if transactional_id:
            from ..broker.transactions.requests import InitProducerId

            return await self._ask(
                InitProducerId(
                    transactional_id=transactional_id, timeout_ms=timeout_ms, current=current
                ),
                context,
            )
        if current is not None and current.producer_epoch < PRODUCER_EPOCH_MAX:
            return ProducerIdentity(current.producer_id, current.producer_epoch + 1)
        # the caller gets the controller's error
        relay_ms = self._metadata.relay_ms(context)
        return ProducerIdentity(await self._ids.take(timeout_ms=relay_ms), 0)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[tuple[str, int]],
        context: RequestContext,
        *,
        verify_only: bool = False,
    ) -> tuple[QuorumlogError | None, ...]:
        """Add partitions to the transaction, all or none; with `verify_only` return whether they
        were added. Return one error or None for each, in order."""
        self._check_write(transactional_id, context)
        denials = {
            topic: self._authorizer.denial(context.client, *_WRITE_TOPIC, topic)
            for topic in {topic for topic, _ in partitions}
        }
        if any(denials.values()):
            return tuple(denials[topic] or _not_attempted(topic) for topic, _ in partitions)
        return await self._add_partitions(
            transactional_id, producer, partitions, context, verify_only=verify_only
        )

    async def _add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[tuple[str, int]],
        context: RequestContext,
        *,
        verify_only: bool = False,
    ) -> tuple[QuorumlogError | None, ...]:
        from ..broker.transactions.requests import AddPartitions, VerifyPartitions

        kind = VerifyPartitions if verify_only else AddPartitions
        request = kind(
            transactional_id=transactional_id, producer=producer, partitions=tuple(partitions)
        )
        if isinstance(request, VerifyPartitions):
            return (await self._ask(request, context)).errors
        _check_id(transactional_id)
        added = await self._transactions.add_partitions(request, deadline_ms=context.deadline_ms)
        return added.errors

    async def add_offsets(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        group: str,
        context: RequestContext,
    ) -> None:
        """Add the partition that stores a group's offsets to the transaction; create their topic at
        first use. Raises InvalidGroupId, and CoordinatorNotAvailable without the topic."""
        self._check_write(transactional_id, context)
        self._check_group(group, context)
        try:
            await self._groups.coordinator_of(group, deadline_ms=context.deadline_ms)
        except CoordinatorNotAvailable:
            if not self._groups.has_topic:
                raise
            # The partition has no leader, which its addition does not need.
        self._check_write(transactional_id, context)  # again, after the wait
        self._check_group(group, context)
        if self._transactions.image.topic(OFFSETS_TOPIC) is None:
            raise CoordinatorLoading(
                f"{OFFSETS_TOPIC}: created, but not in this coordinator's metadata yet; retry"
            )
        partition = self._groups.partition_of(group)
        errors = await self._add_partitions(
            transactional_id, producer, [(OFFSETS_TOPIC, partition)], context
        )
        for error in errors:
            if error is not None:
                raise error

    async def commit_offsets(
        self, request: "CommitTransactionalOffsets", context: RequestContext
    ) -> "CommitOutcome":
        """Store a group's offsets until the transaction ends, after its coordinator verified or
        added the group's partition. Served by the coordinator of the group."""
        _check_id(request.transactional_id)
        topics = sorted({each.topic for each in request.offsets})

        def authorize() -> None:
            if context.check_session is not None:
                context.check_session()
            self._check_write(request.transactional_id, context)
            self._check_group(request.group, context)
            for topic in topics:
                self._authorizer.check(context.client, *_READ_TOPIC, topic)

        authorize()
        return await self._groups.ask_transactional(
            request, deadline_ms=context.deadline_ms, authorize=authorize
        )

    async def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        context: RequestContext,
        *,
        commit: bool,
        bumps_epoch: bool,
    ) -> ProducerIdentity:
        """Commit or abort the transaction; return the identity for the next one, once the decision
        is durable."""
        from ..broker.transactions.requests import EndTransaction

        self._check_write(transactional_id, context)
        return await self._ask(
            EndTransaction(
                transactional_id=transactional_id,
                producer=producer,
                commit=commit,
                bumps_epoch=bumps_epoch,
            ),
            context,
        )

    # --- staged commits ---------------------------------------------------------------------------

    async def open_write(self, context: RequestContext) -> int:
        """Return a write id, greater than every one before."""
        self._check_init("", context)
        return await self._ids.draw(timeout_ms=self._metadata.relay_ms(context))

    # --- operators --------------------------------------------------------------------------------

    @property
    def has_ids(self) -> bool:
        """True if `__transaction_state` exists."""
        return self._transactions.has_topic

    async def coordinator_of(self, transactional_id: str, *, deadline_ms: int) -> NodeId:
        """Return the coordinator; create the topic of transactional ids at first use. Raises
        CoordinatorNotAvailable, InvalidRequest for an empty id."""
        _check_id(transactional_id)
        return await self._transactions.coordinator_of(transactional_id, deadline_ms=deadline_ms)

    def listed_rights(
        self, operation: AclOperation, listed: str, client: ClientIdentity
    ) -> tuple[bool, bool]:
        """Return the rights on an id of the list as a transactional id, and on the name of the
        attempt that it may be; raise the denial without either."""
        kind, attempt = AclResourceType.TRANSACTIONAL_ID, split_attempt_id(listed)
        on_id = self._authorizer.allows(client, operation, kind, listed)
        on_name = attempt is not None and self._authorizer.allows(
            client, operation, kind, attempt[0]
        )
        if not on_id and not on_name:
            self._authorizer.check(client, operation, kind, listed)
        return on_id, on_name

    async def describe(
        self, transactional_id: str, context: RequestContext
    ) -> "TransactionDescription":
        """Return the state of a transactional id, without the topics that the client may not
        describe; raises TransactionalIdNotFound."""
        from ..broker.transactions.requests import DescribeTransaction

        on_id, on_name = self.listed_rights(AclOperation.DESCRIBE, transactional_id, context.client)
        self._check_any_id(transactional_id)
        request = DescribeTransaction(
            transactional_id=transactional_id, has_right_on_id=on_id, has_right_on_name=on_name
        )
        found = await self._ask(request, context)
        describable = tuple(
            (topic, partition)
            for topic, partition in found.partitions
            if self._authorizer.allows(context.client, *_DESCRIBE_TOPIC, topic)
        )
        return dataclasses.replace(found, partitions=describable)

    async def abort(self, transactional_id: str, context: RequestContext) -> ProducerIdentity:
        """Fence the producer of a transactional id and abort its transaction; return the identity
        that fences it."""
        from ..broker.transactions.requests import AbortTransaction

        on_id, on_name = self.listed_rights(AclOperation.WRITE, transactional_id, context.client)
        self._check_any_id(transactional_id)
        request = AbortTransaction(
            transactional_id=transactional_id, has_right_on_id=on_id, has_right_on_name=on_name
        )
        return await self._ask(request, context)

    def _check_any_id(self, transactional_id: str) -> None:
        _check_id(transactional_id)
        if not self.has_ids:
            raise TransactionalIdNotFound(
                f"transactional id {transactional_id}: it does not exist; the cluster has no"
                " transactional ids"
            )

    async def list_transactions(
        self,
        context: RequestContext,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        open_for_ms_min: int = -1,
        pattern: str = "",
    ) -> "list[ListedTransaction]":
        """Return the transactional ids that this broker coordinates and the client may describe,
        by name; an empty filter passes all. Other tasks run in between.

        `open_for_ms_min` is the minimum age of the transaction (negative: any), `pattern` an RE2
        pattern of the whole id. Raises InvalidPattern, also if the pattern is too complex for the
        ids that pass the other filters, and CoordinatorLoading while some ids are loading.
        """
        from ..broker.groups.consumer.subscriptions import compile_pattern

        compiled = compile_pattern(pattern) if pattern else None
        began_ms_max = self._clock.wall_ms() - open_for_ms_min
        may_describe = partial(self._authorizer.allows, context.client, *_DESCRIBE_ID)
        found = [
            each
            for each in await self._transactions.listings(may_describe)
            if (not states or each.state in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (open_for_ms_min < 0 or 0 <= each.started_ms <= began_ms_max)
        ]
        if compiled is None:
            return found
        characters = sum(len(each.transactional_id) for each in found)
        if compiled.programsize * characters > MATCH_STEPS_MAX:
            raise InvalidPattern(
                f"the pattern has {compiled.programsize} instructions, too many for {len(found)}"
                f" transactional ids of {characters} characters; use a simpler one, or filter by"
                " state or producer id"
            )
        return [each for each in found if compiled.fullmatch(each.transactional_id) is not None]

    # --- brokers ----------------------------------------------------------------------------------

    async def write_marker(
        self, marker: "TransactionMarker", topic: str, partition: int, context: RequestContext
    ) -> None:
        """End a transaction in a partition that this broker leads; return once the marker is
        committed, or was written before. Needs ClusterAction or Alter on the cluster."""
        self._check_markers(context)
        error = await self._markers.write(
            topic, partition, b"", marker, deadline_ms=context.deadline_ms
        )
        if error is not None:
            raise error

    # --- authorization ----------------------------------------------------------------------------

    def _check_init(self, transactional_id: str, context: RequestContext) -> None:
        """Check Write on the transactional id; without one IdempotentWrite on the cluster, or Write
        on any topic (KIP-679)."""
        if transactional_id:
            self._check_write(transactional_id, context)
            return
        authorizer, client = self._authorizer, context.client
        if not authorizer.allows_any(client, AclOperation.WRITE, AclResourceType.TOPIC):
            operation, kind = AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER
            authorizer.check(client, operation, kind, any_topic=AclOperation.WRITE)

    def _check_write(self, transactional_id: str, context: RequestContext) -> None:
        self._authorizer.check(
            context.client, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
        )

    def _check_group(self, group: str, context: RequestContext) -> None:
        self._authorizer.check(context.client, AclOperation.READ, AclResourceType.GROUP, group)

    def _check_markers(self, context: RequestContext) -> None:
        cluster = AclResourceType.CLUSTER
        if not self._authorizer.allows(context.client, AclOperation.ALTER, cluster):
            self._authorizer.check(context.client, AclOperation.CLUSTER_ACTION, cluster)

    async def _ask(self, request: "TransactionRequest[R]", context: RequestContext) -> R:
        _check_id(request.transactional_id)
        return await self._transactions.ask(request, deadline_ms=context.deadline_ms)


def _not_attempted(topic: str) -> OperationNotAttempted:
    return OperationNotAttempted(
        "not added to the transaction, since another partition of the request failed", topic=topic
    )


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("transactional_id: empty; give the producer's transactional id")


def _check_producer(field: str, producer: ProducerIdentity) -> None:
    if producer.producer_id < 0:
        raise InvalidRequest(
            f"{field}.producer_id: {producer.producer_id}; give the id of an earlier response"
        )
    if not 0 <= producer.producer_epoch <= PRODUCER_EPOCH_MAX:
        raise InvalidRequest(
            f"{field}.producer_epoch: {producer.producer_epoch}; give 0..{PRODUCER_EPOCH_MAX}"
        )
