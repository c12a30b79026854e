"""What the batches of a log say together: offsets and leader epochs, from the first to the last.

Bytes 0 to 15 of a batch lie outside its CRC: only its neighbours and the other files of the log can
tell that an offset or an epoch there is not the one that was written. Faults are collected here as
they come; whether one is damage or a torn tail is decided at the end, by the rules of recovery.
"""

from dataclasses import dataclass

from ...ids import NO_EPOCH
from ...records.batch import OFFSET_MAX, BatchHeader
from ..segments.index import RELATIVE_OFFSET_MAX
from .findings import FINDINGS_MAX, Kind, LogReport
from .scanning import Bad, Good


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that no log has whose writes all came through."""

    kind: Kind
    file: str
    position: int
    offset: int  # where the log goes on in front of it
    what: str
    bytes_before: int  # of good batches


@dataclass(slots=True)
class EpochRun:
    """Batches of one leader epoch that follow one another."""

    epoch: int
    first_offset: int  # base offset of its first batch
    last_offset: int  # base offset of its last batch


class Course:
    """Follows the batches of one log. `is_compacted`: offsets may have gaps, but in the active
    segment none around `recovery_point`, which was the log's end once."""

    def __init__(self, *, is_compacted: bool, recovery_point: int | None = None) -> None:
        self.is_compacted = is_compacted
        self._recovery_point = recovery_point
        self._base_offset = 0  # of the segment
        self._is_active = False
        self.faults: list[Fault] = []
        self.fault_count = 0
        self.good_bytes = 0
        self.next_offset = 0  # behind the last good batch
        self.runs: list[EpochRun] = []
        self._epoch: int = NO_EPOCH  # of the batch before
        self._is_sure = False  # whether the next batch must start at `next_offset`
        self._lost: Bad | None = None  # in front of the next good batch
        self._lost_file = ""

    def start_segment(
        self, path: str, base_offset: int, *, is_first: bool, is_active: bool
    ) -> None:
        """A segment begins."""
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
                Kind.OFFSET_ORDER,
                path,
                0,
                f"the segment starts at offset {base_offset}, the log goes on at"
                f" {self.next_offset}",
            )
        self.next_offset, self._is_sure = max(base_offset, self.next_offset), True

    def bad(self, path: str, bad: Bad) -> None:
        """Take in a stretch without a good batch."""
        self._fault(
            Kind.BATCH_DAMAGED,
            path,
            bad.position,
            f"{bad.reason} ({bad.end - bad.position} bytes are unreadable)",
        )
        self._is_sure = False
        self._lost, self._lost_file = bad, path

    def good(self, path: str, good: Good) -> None:
        """Take in a batch that is good by itself."""
        header = good.header
        base = header.base_offset
        if base != self.next_offset or header.last_offset_delta < 0 or not self._is_sure:
            self._follow(path, good)
        else:
            self.next_offset = base + header.last_offset_delta + 1
        if header.leader_epoch != self._epoch:
            self._note_epoch(path, good.position, header)
        if self._is_sure and header.leader_epoch >= 0:  # else its base offset may be wrong
            if self.runs and self.runs[-1].epoch == header.leader_epoch:
                self.runs[-1].last_offset = base
            else:
                self.runs.append(EpochRun(header.leader_epoch, base, base))
        self.good_bytes += header.size
        if good.fault is not None:
            self._fault(Kind.BATCH_MALFORMED, path, good.position, good.fault, offset=base)

    def malformed(self, path: str, good: Good, what: str) -> None:
        """Take in that a batch says what no batch may say where it stands."""
        self.good_bytes -= good.header.size  # `good` has counted it: it does not lie in front
        self._fault(Kind.BATCH_MALFORMED, path, good.position, what, offset=good.header.base_offset)
        self.good_bytes += good.header.size

    def _follow(self, path: str, good: Good) -> None:
        header = good.header
        base, delta, expected = header.base_offset, header.last_offset_delta, self.next_offset
        relative = base + delta - self._base_offset
        if delta < 0 or not 0 <= base <= OFFSET_MAX - delta or relative > RELATIVE_OFFSET_MAX:
            self._fault(
                Kind.OFFSET_ORDER,
                path,
                good.position,
                f"a batch from offset {base} to {base + delta} is impossible",
            )
            self._is_sure = False
            return
        if base < expected or (self._is_sure and base > expected and not self._may_skip_to(base)):
            self._fault(
                Kind.OFFSET_ORDER,
                path,
                good.position,
                f"a batch of offsets [{base}, {base + delta + 1}) stands where the log goes on at"
                f" {expected}",
            )
            # Which of the two is wrong is not known: whatever follows counts anew.
            self.next_offset = expected if base > expected else base + delta + 1
            self._is_sure = False
            return
        self._found_lost_end(base)
        self.next_offset, self._is_sure = base + delta + 1, True

    def _may_skip_to(self, offset: int) -> bool:
        """Whether compaction may have left a gap in front of `offset`."""
        point = self._recovery_point
        is_across = point is not None and self.next_offset < point < offset
        return self.is_compacted and not (self._is_active and is_across)

    def _found_lost_end(self, offset: int) -> None:
        """A good batch follows a bad stretch: say which offsets were in it."""
        lost, self._lost = self._lost, None
        if lost is None or offset == self.next_offset or not self.faults:
            return
        for at in range(len(self.faults) - 1, -1, -1):
            fault = self.faults[at]
            if fault.position == lost.position and fault.file == self._lost_file:
                what = f"{fault.what}; offsets [{self.next_offset}, {offset}) are lost with it"
                self.faults[at] = Fault(
                    fault.kind, fault.file, fault.position, fault.offset, what, fault.bytes_before
                )
                return

    def _note_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        epoch, base = header.leader_epoch, header.base_offset
        if epoch < NO_EPOCH:
            self._fault(
                Kind.EPOCH_ORDER, path, position, f"leader epoch {epoch} is impossible", offset=base
            )
            return
        if epoch < self._epoch:
            self._fault(
                Kind.EPOCH_ORDER,
                path,
                position,
                f"a batch of leader epoch {epoch} follows epoch {self._epoch}",
                offset=base,
            )
        self._epoch = epoch

    def _fault(
        self, kind: Kind, path: str, position: int, what: str, *, offset: int | None = None
    ) -> None:
        self.fault_count += 1
        if len(self.faults) < FINDINGS_MAX:
            where = self.next_offset if offset is None else offset
            self.faults.append(Fault(kind, path, position, where, what, self.good_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStop:
    """What is known of how the log was left."""

    is_clean: bool | None  # None: there is no data directory around it
    recovery_point: int | None
    torn_bytes_max: int | None  # of an fsync log: bytes that can be torn; None: no bound


def first_torn(course: Course, stop: LastStop) -> int | None:
    """Return which fault begins a torn tail, by the rules of recovery; None when none does."""
    if stop.is_clean:
        return None
    for at, fault in enumerate(course.faults):
        behind = course.good_bytes - fault.bytes_before
        if stop.is_clean is None:
            if behind == 0 and fault.kind is Kind.BATCH_DAMAGED:
                return at
        elif fault.offset >= (stop.recovery_point or 0):
            is_bounded = stop.torn_bytes_max is None or behind <= stop.torn_bytes_max
            return at if is_bounded else None
    return None


def tell_faults(course: Course, stop: LastStop, report: LogReport, *, size: int) -> Fault | None:
    """Write the faults into the report; return where its torn tail begins, None without one."""
    torn_at = first_torn(course, stop)
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
        what += f"; {behind} bytes of good batches behind it go with it"
    report.findings.add(Kind.TORN_TAIL, torn.file, what, position=torn.position, offset=torn.offset)
    return torn
