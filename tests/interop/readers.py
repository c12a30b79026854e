"""Two public implementations of the record batch with one interface.

aiokafka's (its C extension) and kafka-python's (plain Python): they build batches for our codec,
and read its batches. kafka-python also uses other compression libraries.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.record import MemoryRecords as AioRecords
from aiokafka.record._crecords.default_records import DefaultRecordBatchBuilder as AioBuilder

from quorumlog.records import Codec, Record

with warnings.catch_warnings():  # its schemas use a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords as KafkaPythonRecords
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

NO_LIMIT = 2**30


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A batch as a reader returns it."""

    base_offset: int
    next_offset: int
    codec: int
    log_append_time: bool
    is_transactional: bool
    is_control: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[Record]


@dataclass(frozen=True)
class Peer:
    """One implementation of the record batch."""

    name: str
    reader: Any
    builder: Any

    def build(
        self,
        records: Sequence[Record],
        *,
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytes:
        """Build one batch as a producer does: offsets count from 0."""
        builder = self.builder(
            magic=2,
            compression_type=codec.value,
            is_transactional=int(is_transactional),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            batch_size=NO_LIMIT,
        )
        for index, record in enumerate(records):
            taken = builder.append(
                index,
                timestamp=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
            )
            assert taken is not None, "the builder is full"
        return bytes(builder.build())

    def read(self, buffer: bytes) -> list[Seen]:
        """Read all batches, with a check of each CRC."""
        batches = self.reader(buffer)
        seen = []
        while batches.has_next():
            batch = batches.next_batch()
            assert batch.validate_crc(), f"{self.name} finds a wrong CRC"
            seen.append(
                Seen(
                    base_offset=batch.base_offset,
                    next_offset=batch.next_offset,
                    codec=batch.compression_type,
                    log_append_time=bool(batch.timestamp_type),
                    is_transactional=batch.is_transactional,
                    is_control=batch.is_control_batch,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    base_sequence=batch.base_sequence,
                    records=[
                        Record(
                            item.offset, item.timestamp, item.key, item.value, tuple(item.headers)
                        )
                        for item in batch
                    ],
                )
            )
        return seen


PEERS = (
    Peer("aiokafka", AioRecords, AioBuilder),
    Peer("kafka-python", KafkaPythonRecords, KafkaPythonBuilder),
)
