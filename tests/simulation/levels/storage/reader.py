"""A complete read of a log, through its reader."""

from dataclasses import replace

from quorumlog.records.batch import BatchHeader, iterate_batches
from quorumlog.records.codec import decode_all
from quorumlog.records.control import parse_marker
from quorumlog.storage import Log
from quorumlog.storage.shell import DataDirectory

from .expected import Content, Expectation, FolderState, ReadRecord, Stored, check_kept

READ_BYTES = 1_500


async def read_all(directory: DataDirectory, log: Log) -> Stored:
    """Read a log from its start to its end; raises AssertionError if it is inconsistent."""
    records: dict[int, ReadRecord] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=READ_BYTES)
        assert taken is not None, f"{log.name}: nothing at {offset} of {log.log_end_offset}"
        content = await directory.reader.read(taken)
        headers: dict[int, BatchHeader] = {}
        for position, header in iterate_batches(content):
            for covered in range(header.base_offset, header.next_offset):
                headers[covered] = header
            known = log.epochs.epoch_at(max(header.base_offset, log.log_start_offset))
            assert known == header.leader_epoch, f"{log.name}: epoch at {header.base_offset}"
            codec = log.config.compression_type
            assert codec is None or header.codec is codec, f"{log.name}: {header} is not {codec}"
            assert header.log_append_time == log.config.log_append_time, f"{log.name}: {header}"
            marker = parse_marker(content, position, header) if header.is_control else None
            if marker is not None and header.base_offset >= log.log_start_offset:
                records[header.base_offset] = ReadRecord(
                    None, None, header.leader_epoch, marker.kind, header.producer_id
                )
        for record in decode_all(content):
            if record.offset >= log.log_start_offset:
                assert record.offset not in records, f"{log.name}: {record.offset} twice"
                header = headers[record.offset]
                records[record.offset] = ReadRecord(
                    record.key, record.value, header.leader_epoch, None, header.producer_id
                )
        assert taken.next_offset > offset, f"{log.name} stands still at {offset}"
        offset = taken.next_offset
    return Stored(log.log_start_offset, offset, records)


async def check_log(
    directory: DataDirectory, log: Log, expectation: Expectation, *, is_power_cut: bool
) -> tuple[Stored, Content]:
    """Raise AssertionError unless a log is in a possible state; return its records and its
    content."""
    found = await read_all(directory, log)
    if expectation.life is FolderState.DELETING:
        # Its checkpoints may be deleted: the remaining records are its own, but some may be
        # missing, and deleted ones may be back. The broker removes the log by its topic id.
        expectation = replace(expectation, durable_end=0, written_end=0, start_least=0)
    return found, check_kept(log.name, expectation, found, is_power_cut=is_power_cut)
