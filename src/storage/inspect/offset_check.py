"""Verification of offsets and leader epochs across the batches of a log.

Bytes 0 to 15 of a batch lie outside its CRC: only its neighbours and the other files of the log
reveal a wrong offset or epoch there. Faults are collected here in order. At the end the rules of
recovery classify each as corruption or a torn tail.
"""

from dataclasses import dataclass

from ...ids import NO_EPOCH
from ...records.batch import OFFSET_MAX, BatchHeader
from ..index import RELATIVE_OFFSET_MAX
from .findings import FINDINGS_MAX, FindingKind, LogReport
from .scan import InvalidRange, ValidBatch


@dataclass(frozen=True, slots=True)
class OrderFault:
    """A fault that no log has after completed writes."""

    kind: FindingKind
    file: str
    position: int
    offset: int  # the expected offset at the fault
    what: str
    bytes_before: int  # of valid batches


@dataclass(slots=True)
class EpochRun:
    """Consecutive batches of one leader epoch."""

    epoch: int
    first_offset: int  # base offset of its first batch
    last_offset: int  # base offset of its last batch


class OffsetCheck:
    """Verifies the batches of one log in order. `is_compacted`: offsets may have gaps, except
    around `recovery_point` in the active segment, which was the log end once."""

    def __init__(self, *, is_compacted: bool, recovery_point: int | None = None) -> None:
        self.is_compacted = is_compacted
        self._recovery_point = recovery_point
        self._base_offset = 0  # of the segment
        self._is_active = False
        self.faults: list[OrderFault] = []
        self.fault_count = 0
        self.good_bytes = 0
        self.next_offset = 0  # after the last valid batch
        self.runs: list[EpochRun] = []
        self._epoch: int = NO_EPOCH  # of the previous batch
        self._is_sure = False  # the next batch must start at `next_offset`
        self._lost: InvalidRange | None = None  # before the next valid batch
        self._lost_file = ""

    def start_segment(
        self, path: str, base_offset: int, *, is_first: bool, is_active: bool
    ) -> None:
        """Start the next segment."""
        self._base_offset, self._is_active = base_offset, is_active
        if is_first:
            self.next_offset, self._is_sure = base_offset, True
            return
        if base_offset == self.next_offset:
            self._is_sure = True
            return
        if not self._is_sure and base_offset > self.next_offset:
            self._found_lost_end(base_offset)
        elif not (self.is_compacted and base_offset > self.next_offset):
            self._fault(
                FindingKind.OFFSET_ORDER,
                path,
                0,
                f"the segment starts at offset {base_offset}; the expected offset is"
                f" {self.next_offset}",
            )
        self.next_offset, self._is_sure = max(base_offset, self.next_offset), True

    def bad(self, path: str, bad: InvalidRange) -> None:
        """Add a range without a valid batch."""
        self._fault(
            FindingKind.BATCH_DAMAGED,
            path,
            bad.position,
            f"{bad.reason} ({bad.end - bad.position} bytes are unreadable)",
        )
        self._is_sure = False
        self._lost, self._lost_file = bad, path

    def good(self, path: str, good: ValidBatch) -> None:
        """Add a batch that is valid by itself."""
        header = good.header
        base = header.base_offset
        if base != self.next_offset or header.last_offset_delta < 0 or not self._is_sure:
            self._follow(path, good)
        else:
            self.next_offset = base + header.last_offset_delta + 1
        if header.leader_epoch != self._epoch:
            self._note_epoch(path, good.position, header)
        if self._is_sure and header.leader_epoch >= 0:  # otherwise its base offset may be wrong
            if self.runs and self.runs[-1].epoch == header.leader_epoch:
                self.runs[-1].last_offset = base
            else:
                self.runs.append(EpochRun(header.leader_epoch, base, base))
        self.good_bytes += header.size
        if good.fault is not None:
            self._fault(FindingKind.BATCH_MALFORMED, path, good.position, good.fault, offset=base)

    def malformed(self, path: str, good: ValidBatch, what: str) -> None:
        """Record that the batch at this position is invalid."""
        self.good_bytes -= good.header.size  # `good` counted it, but it does not precede the fault
        self._fault(
            FindingKind.BATCH_MALFORMED, path, good.position, what, offset=good.header.base_offset
        )
        self.good_bytes += good.header.size

    def _follow(self, path: str, good: ValidBatch) -> None:
        header = good.header
        base, delta, expected = header.base_offset, header.last_offset_delta, self.next_offset
        relative = base + delta - self._base_offset
        if delta < 0 or not 0 <= base <= OFFSET_MAX - delta or relative > RELATIVE_OFFSET_MAX:
            self._fault(
                FindingKind.OFFSET_ORDER,
                path,
                good.position,
                f"a batch from offset {base} to {base + delta} is impossible",
            )
            self._is_sure = False
            return
        if base < expected or (self._is_sure and base > expected and not self._may_skip_to(base)):
            self._fault(
                FindingKind.OFFSET_ORDER,
                path,
                good.position,
                f"a batch of offsets [{base}, {base + delta + 1}) follows; the expected offset is"
                f" {expected}",
            )
            # Either one may be wrong: the next batches restart the count.
            self.next_offset = expected if base > expected else base + delta + 1
            self._is_sure = False
            return
        self._found_lost_end(base)
        self.next_offset, self._is_sure = base + delta + 1, True

    def _may_skip_to(self, offset: int) -> bool:
        """Return True if compaction may have left a gap before `offset`."""
        point = self._recovery_point
        is_across = point is not None and self.next_offset < point < offset
        return self.is_compacted and not (self._is_active and is_across)

    def _found_lost_end(self, offset: int) -> None:
        """Add the lost offsets to a fault, after the next valid batch."""
        lost, self._lost = self._lost, None
        if lost is None or offset == self.next_offset or not self.faults:
            return
        for at in range(len(self.faults) - 1, -1, -1):
            fault = self.faults[at]
            if fault.position == lost.position and fault.file == self._lost_file:
                what = f"{fault.what}; offsets [{self.next_offset}, {offset}) are lost with it"
                self.faults[at] = OrderFault(
                    fault.kind, fault.file, fault.position, fault.offset, what, fault.bytes_before
                )
                return

    def _note_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        epoch, base = header.leader_epoch, header.base_offset
        if epoch < NO_EPOCH:
            self._fault(
                FindingKind.EPOCH_ORDER,
                path,
                position,
                f"leader epoch {epoch} is impossible",
                offset=base,
            )
            return
        if epoch < self._epoch:
            self._fault(
                FindingKind.EPOCH_ORDER,
                path,
                position,
                f"a batch of leader epoch {epoch} follows epoch {self._epoch}",
                offset=base,
            )
        self._epoch = epoch

    def _fault(
        self, kind: FindingKind, path: str, position: int, what: str, *, offset: int | None = None
    ) -> None:
        self.fault_count += 1
        if len(self.faults) < FINDINGS_MAX:
            where = self.next_offset if offset is None else offset
            self.faults.append(OrderFault(kind, path, position, where, what, self.good_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastShutdown:
    """The state of the log's last shutdown."""

    is_clean: bool | None  # None: the log is not in a data directory
    recovery_point: int | None
    torn_bytes_max: int | None  # of an fsync log: bytes that can be torn; None: no limit


def find_torn_tail(course: OffsetCheck, stop: LastShutdown) -> int | None:
    """Return the index of the fault that starts a torn tail, by the rules of recovery; None without
    one."""
    if stop.is_clean:
        return None
    for at, fault in enumerate(course.faults):
        behind = course.good_bytes - fault.bytes_before
        if stop.is_clean is None:
            if behind == 0 and fault.kind is FindingKind.BATCH_DAMAGED:
                return at
        elif fault.offset >= (stop.recovery_point or 0):
            is_bounded = stop.torn_bytes_max is None or behind <= stop.torn_bytes_max
            return at if is_bounded else None
    return None


def report_faults(
    course: OffsetCheck, stop: LastShutdown, report: LogReport, *, size: int
) -> OrderFault | None:
    """Add the faults to the report; return the start of the torn tail, None without one."""
    torn_at = find_torn_tail(course, stop)
    for fault in course.faults[:torn_at]:
        report.findings.add(
            fault.kind, fault.file, fault.what, position=fault.position, offset=fault.offset
        )
    if torn_at is None:
        report.findings.problem_count += course.fault_count - len(course.faults)
        return None
    torn = course.faults[torn_at]
    behind = course.good_bytes - torn.bytes_before
    what = f"the log ends at offset {torn.offset}: {torn.what}"
    if behind:
        what += f"; {behind} bytes of valid batches after it are truncated too"
    report.findings.add(
        FindingKind.TORN_TAIL, torn.file, what, position=torn.position, offset=torn.offset
    )
    return torn
