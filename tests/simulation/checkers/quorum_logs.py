"""A comparison of the metadata logs of dead members: they must be one log."""

from collections.abc import Iterator, Mapping

from quorumlog.records.batch import HEADER_SIZE, parse_header
from quorumlog.simulation.disk import Disk

from .quorum_invariants import LOG_SUFFIX, METADATA_FOLDER


def compare_logs(disks: Mapping[str, Disk]) -> int:
    """Compare the batches that several members hold; return the number of comparisons. Raises
    AssertionError for the first difference."""
    known: dict[int, tuple[str, bytes]] = {}  # base offset -> (first member, bytes)
    count = 0
    for name, disk in disks.items():
        for base_offset, batch in _batches(disk):
            node, there = known.setdefault(base_offset, (name, batch))
            count += node != name
            assert there == batch, f"the batch at {base_offset} differs between {node} and {name}"
    return count


def _batches(disk: Disk) -> Iterator[tuple[int, bytes]]:
    for path, body in disk.files():
        if f"/{METADATA_FOLDER}/" not in path or not path.endswith(LOG_SUFFIX):
            continue
        position = 0
        while position + HEADER_SIZE <= len(body.content):
            header = parse_header(bytes(body.content[position : position + HEADER_SIZE]))
            end = position + header.size
            yield header.base_offset, bytes(body.content[position:end])
            position = end
