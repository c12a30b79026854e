"""Producer ids and sequence numbers on the leader side, for in-memory brokers."""

from collections import defaultdict, deque

from quorumlog.errors import InvalidProducerEpoch, OutOfOrderSequence
from quorumlog.proto import transactions_pb2 as pb
from quorumlog.records import BatchHeader
from quorumlog.runtime import CallContext, Handler
from quorumlog.services import TRANSACTIONS_INIT_PRODUCER_ID


class Known:
    """The state of one producer in one partition."""

    def __init__(self) -> None:
        self.epoch = -1
        self.next = -1  # any sequence
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=5)  # first, last, offset


class LeaderMemory:
    """The producer state of a leader; see the module."""

    def __init__(self) -> None:
        self.ids_given = 0
        self._known: dict[tuple[int, int], Known] = defaultdict(Known)

    def handler(self) -> Handler:
        return Handler(TRANSACTIONS_INIT_PRODUCER_ID, self.init_producer_id)

    async def init_producer_id(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        self.ids_given += 1
        producer = pb.ProducerIdentity(producer_id=self.ids_given, producer_epoch=0)
        return pb.InitProducerIdResponse(producer=producer)

    def stored_at(self, partition: int, header: BatchHeader) -> int | None:
        """Return the offset of a duplicate batch, None if the batch is new. Raise the error of a
        refusal."""
        if header.producer_id < 0:
            return None
        known = self._known[partition, header.producer_id]
        first, last = header.base_sequence, header.base_sequence + header.last_offset_delta
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch("an older epoch")
        is_new = header.producer_epoch > known.epoch
        expected = known.next if not is_new or known.epoch < 0 else 0
        if expected in (-1, first):
            return None
        for begin, end, offset in known.batches:
            if not is_new and (begin, end) == (first, last):
                return offset
        raise OutOfOrderSequence(f"{first} came, {expected} is next")

    def note(self, partition: int, header: BatchHeader, offset: int) -> None:
        """Record that a batch was stored."""
        if header.producer_id < 0:
            return
        known = self._known[partition, header.producer_id]
        if header.producer_epoch > known.epoch:
            known.batches.clear()
        known.epoch = header.producer_epoch
        last = header.base_sequence + header.last_offset_delta
        known.next = last + 1
        known.batches.append((header.base_sequence, last, offset))

    def forget(self) -> None:
        """Drop all state, as a leader whose log was lost."""
        self._known.clear()
