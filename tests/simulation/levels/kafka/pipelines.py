"""Producers that pipeline Produce requests over a connection, and check each outcome.

A burst has up to five requests to one leader, with and without producer ids, of every acks and
version. Their frames are joined, cut at drawn places, and sometimes followed by a fetch. Batches
with a producer id are repeated until their outcome is known; others are sent once.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from quorumlog.errors import QuorumlogError, StreamBroken
from quorumlog.records import Record
from quorumlog.records.codec import encode_batch
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy
from quorumlog.testing.checkers import Place, Stored

from ...checkers.violation import Violation
from ..transactions.committed_reads import READ_UNCOMMITTED
from ..transactions.plan import COMPACTED
from .client import FETCH, METADATA, PRODUCE, KafkaClient, ProducerId, fetch_fields, fetched
from .connection import Frame, KafkaLink

if TYPE_CHECKING:
    from .application import KafkaApplication

REQUESTS_MAX: Final = 5  # of Kafka clients, max.in.flight.requests.per.connection
BY_ID: Final = 13  # the first version with topic ids
FLEXIBLE: Final = 9
WITH_IDS: Final = 10  # the first version of Metadata with topic ids
PAUSES: Final = 3  # of plain producers, which write less at once
PIECES_MAX: Final = 4
VALUE_BYTES_MAX: Final = 200
RESOLVE_MS_MAX: Final = 20_000
FETCH_BYTES: Final = 4_096
ALL: Final = -1
UNKNOWN_PARTITION: Final = 900
UNKNOWN_TRANSACTION: Final = "no-such-transaction"

OUT_OF_RANGE: Final = 1
CORRUPT: Final = 2
STORAGE: Final = 56
UNKNOWN_TOPIC_ID: Final = 100
OF_SEQUENCES: Final = frozenset({45, 46, 47, 59})
OF_LEADERS: Final = frozenset({3, 6})
OF_WAITS: Final = {ALL: frozenset({7, 19, 20}), 1: frozenset({7, 19}), 0: frozenset[int]()}
OF_TRANSACTIONS: Final = frozenset({19, 48, 49, 51, 120})


class Kind(StrEnum):
    """The kinds of batches."""

    PLAIN = "plain"  # without a producer id
    NEXT = "next"  # continues its producer's sequence
    REPEAT = "repeat"  # the last acknowledged one again
    GAP = "gap"  # its sequence is too high
    TRANSACTIONAL = "transactional"  # of a transaction that no coordinator has
    DAMAGED = "damaged"  # its checksum is wrong
    ELSEWHERE = "elsewhere"  # to a partition that does not exist


NEVER_STORED: Final = frozenset({Kind.GAP, Kind.TRANSACTIONAL, Kind.DAMAGED, Kind.ELSEWHERE})
MIXED: Final = (*Kind, Kind.PLAIN, Kind.NEXT, Kind.NEXT, Kind.REPEAT, Kind.REPEAT)


@dataclass(slots=True)
class PipelineLedger:
    """The outcomes of all pipelined batches of a run.

    `committed_end` and `written_end` return the highest high watermark and log end that any replica
    of a partition had. `has_device_faults` returns True once a device failed or a log was closed.
    `before_burst` is called with the partitions of a burst.
    """

    committed_end: Callable[[str, int], int]
    written_end: Callable[[str, int], int]
    has_device_faults: Callable[[], bool]
    before_burst: Callable[[Sequence[Place]], None]
    counts: Counter[str] = field(default_factory=Counter)
    # by partition and offset, acknowledged with acks=all
    committed: dict[tuple[Place, int], bytes] = field(default_factory=dict)
    # acknowledged otherwise, and sent once
    written: dict[tuple[Place, bytes], int] = field(default_factory=dict)

    def judge(self, stored: Stored) -> None:
        """Raise Violation if a stored record has another offset than its acknowledgement."""
        for place, records in stored.items():
            for offset, value in records:
                expected = self.written.get((place, value), offset)
                if offset != expected:
                    raise Violation(
                        "MovedRecord",
                        f"{value[:20]!r} is stored at {place} {offset}, acknowledged at {expected}",
                    )
                other = self.committed.get((place, offset), value)
                if other != value:
                    raise Violation(
                        "WrongRecord",
                        f"{place} {offset} holds {value[:20]!r}, {other[:20]!r} was acknowledged",
                    )


@dataclass(slots=True, eq=False)
class Batch:
    """A batch of one burst, and its outcome."""

    place: Place
    kind: Kind
    acks: int
    values: list[bytes]
    records: bytes
    sequence: int = -1
    attempts: int = 0
    may_be_out_of_order: bool = False  # an earlier batch of its producer may be missing
    code: int | None = None  # of the last response; None: no response
    base_offset: int = -1

    @property
    def must_be_resolved(self) -> bool:
        """True if it is repeated until its outcome is known."""
        return self.kind is Kind.NEXT and self.acks != 0 and self.code != 0


@dataclass(slots=True, eq=False)
class PipelinedRequest:
    """A Produce request with a batch for each of its partitions."""

    version: int
    acks: int
    batches: list[Batch]

    def fields(self, topic_ids: dict[str, bytes], timeout_ms: int) -> dict[str, Any]:
        """Return the fields of the request."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for batch in self.batches:
            topic, index = batch.place
            index = UNKNOWN_PARTITION if batch.kind is Kind.ELSEWHERE else index
            part = {"index": index, "records": batch.records}
            topics.setdefault(topic, []).append(part)
        is_transactional = self.batches[0].kind is Kind.TRANSACTIONAL
        return {
            "transactional_id": UNKNOWN_TRANSACTION if is_transactional else None,
            "acks": self.acks,
            "timeout": timeout_ms,
            "topic_data": [
                {
                    **(
                        {"topic_id": topic_ids[topic]} if self.version >= BY_ID else {"name": topic}
                    ),
                    "partition_data": parts,
                }
                for topic, parts in topics.items()
            ],
        }


class PipelinedProducer:
    """A producer with up to two connections to each leader."""

    def __init__(
        self,
        application: "KafkaApplication",
        name: str,
        client: KafkaClient,
        entropy: Entropy,
        ledger: PipelineLedger,
        places: Sequence[Place],
    ) -> None:
        """`client` finds leaders and producer ids; `places` are the partitions to write to."""
        self._application = application
        self._name = name
        self._client = client
        self._entropy = entropy
        self._ledger = ledger
        self._places = places
        self._links: dict[tuple[str, int], KafkaLink] = {}
        self._links_opened = 0
        self._identity: ProducerId | None = None  # None: a new one is needed
        # no acknowledged batch of the producer id may be lost: it is used with acks=all only
        self._uses_all = True
        self._compresses = 0.0  # probability, in this burst
        self._sequences: dict[Place, int] = {}
        self._last: dict[Place, Batch] = {}  # acknowledged last, with acks=all
        client.versions[METADATA] = WITH_IDS + entropy.below(3)

    async def run(self) -> None:
        """Send bursts until the run is over."""
        application, workload = self._application, self._application.workload
        while not application.notes.is_over:
            try:
                is_current = await self._burst()
            except QuorumlogError as error:
                application.notes.note(error)
                is_current = False
            if not is_current:
                await application.look(self._client)
            pause_ms = self._entropy.uniform(*workload.pause_ms)
            await asyncio.sleep(pause_ms / 1000 * PAUSES)
        for link in self._links.values():
            link.end()
        self._client.close()

    # --- bursts --------------------------------------------------------------------------------

    async def _burst(self) -> bool:
        """Send a burst and wait for its outcomes. Return False if the metadata may be stale."""
        if self._identity is None:
            self._identity = await self._client.producer_id()
            self._uses_all = self._chance(0.6)
            self._sequences, self._last = {}, {}
        shares: dict[str, list[Place]] = {}
        for place in self._places:
            address = self._client.address_of(place)
            if address is not None and place[0] in self._client.topic_ids:
                shares.setdefault(address, []).append(place)
        if not shares:
            return False
        address = sorted(shares)[self._entropy.below(len(shares))]
        requests = self._draw_requests(shares[address])
        links = 2 if self._chance(0.15) else 1
        self._ledger.counts["pipelines"] += 1
        self._ledger.counts["two_links"] += links == 2
        fetches = shares[address][0] if self._chance(0.25) else None
        closes = links == 1 and all(one.acks == 0 for one in requests) and self._chance(0.5)
        self._ledger.before_burst([one.place for request in requests for one in request.batches])
        try:
            await self._exchange(address, requests, links=links, fetches=fetches, closes=closes)
        except QuorumlogError as error:  # the batches have their sequences, and are resolved below
            self._application.notes.note(error)
        batches = [batch for request in requests for batch in request.batches]
        for batch in batches:
            if batch.code != 0 and not batch.must_be_resolved:
                self._failed(batch)
        unresolved = [batch for batch in batches if batch.must_be_resolved]
        is_lost = not self._uses_all and any(batch.code != 0 for batch in batches if batch.acks)
        if not await self._resolve(unresolved) or (is_lost or closes):
            self._identity = None
        return all(one.code == 0 for one in batches if one.acks and one.kind not in NEVER_STORED)

    def _draw_requests(self, places: list[Place]) -> list[PipelinedRequest]:
        entropy = self._entropy
        count = 1 + entropy.below(REQUESTS_MAX)
        is_mixed = self._chance(0.35)
        common = (Kind.PLAIN, Kind.NEXT)[entropy.below(2)]
        acks = (ALL, ALL, 1, 0)[entropy.below(4)]
        version = self._draw_version()
        self._compresses = 0.6 if self._chance(0.2) else 0.05
        requests = []
        for _ in range(count):
            kind = MIXED[entropy.below(len(MIXED))] if is_mixed else common
            requests.append(
                self._draw_request(
                    places,
                    kind,
                    (ALL, 1, 0)[entropy.below(3)] if self._chance(0.1) else acks,
                    self._draw_version() if self._chance(0.1) else version,
                )
            )
        return requests

    def _draw_request(
        self, places: list[Place], kind: Kind, acks: int, version: int
    ) -> PipelinedRequest:
        entropy = self._entropy
        if kind not in (Kind.PLAIN, Kind.DAMAGED, Kind.ELSEWHERE) and self._uses_all:
            acks = ALL
        first = entropy.below(len(places))
        chosen = [places[first]]
        if kind in (Kind.PLAIN, Kind.NEXT) and self._chance(0.15):
            chosen = places[first : first + 2]
        return PipelinedRequest(version, acks, [self._draw(one, kind, acks) for one in chosen])

    def _draw(self, place: Place, kind: Kind, acks: int) -> Batch:
        entropy, notes = self._entropy, self._application.notes
        last = self._last.get(place)
        if kind in (Kind.REPEAT, Kind.GAP) and (last is None or not self._is_certain(place)):
            kind = Kind.NEXT
        if kind is Kind.REPEAT:
            assert last is not None, "checked above"
            return replace(last, kind=kind, acks=acks, attempts=0)
        if kind is Kind.NEXT and self._uses_all and last is None and place in self._sequences:
            kind = Kind.PLAIN  # an unknown producer may begin anywhere: its first batch comes alone
        size_max = min(self._application.workload.value_size_max, VALUE_BYTES_MAX)
        values = [
            notes.next_value(self._name, entropy.below(size_max + 1))
            for _ in range(1 + entropy.below(3))
        ]
        sequence = -1
        if kind is not Kind.PLAIN and kind not in (Kind.DAMAGED, Kind.ELSEWHERE):
            sequence = self._sequences.get(place, 0) + (100 if kind is Kind.GAP else 0)
        records = self._encode(place, kind, values, sequence)
        batch = Batch(place, kind, acks, values, records, sequence)
        if kind is Kind.NEXT:
            self._sequences[place] = sequence + len(values)
        self._ledger.counts[kind] += 1
        return batch

    def _encode(self, place: Place, kind: Kind, values: list[bytes], sequence: int) -> bytes:
        entropy, now_ms = self._entropy, self._application.runtime.clock.wall_ms()
        identity = self._identity
        assert identity is not None, "a burst has a producer id"
        is_compacted = place[0] == COMPACTED
        codec = (
            (Codec.LZ4, Codec.ZSTD)[entropy.below(2)]
            if self._chance(self._compresses)
            else Codec.NONE
        )
        records = encode_batch(
            [
                Record(0, now_ms, b"k%d" % entropy.below(3) if is_compacted else None, value)
                for value in values
            ],
            codec=codec,
            producer_id=identity.number if sequence >= 0 else -1,
            producer_epoch=identity.epoch if sequence >= 0 else -1,
            base_sequence=sequence,
            is_transactional=kind is Kind.TRANSACTIONAL,
        )
        if kind is Kind.DAMAGED:
            records = records[:-1] + bytes([records[-1] ^ 0xFF])
        return records

    def _draw_version(self) -> int:
        low = FLEXIBLE if self._chance(0.7) else 3
        return low + self._entropy.below(BY_ID + 1 - low)

    # --- requests ------------------------------------------------------------------------------

    async def _exchange(
        self,
        address: str,
        requests: Sequence[PipelinedRequest],
        *,
        links: int = 1,
        fetches: Place | None = None,
        closes: bool = False,
    ) -> None:
        """Send requests over a few connections, and set the code of each batch."""
        sent: list[tuple[PipelinedRequest, KafkaLink, Frame]] = []
        opened = [await self._link(address, number) for number in range(links)]
        behind: set[Place] = set()  # of batches with sequences
        contents: dict[KafkaLink, list[bytes]] = {link: [] for link in opened}
        timeout_ms = self._application.workload.request_timeout_ms
        for number, request in enumerate(requests):
            link = opened[number % links]
            if link.is_over:
                continue
            for batch in request.batches:
                self._note_attempt(batch, link, behind, links)
            frame = link.frame(
                PRODUCE,
                request.version,
                request.fields(self._client.topic_ids, timeout_ms // 2),
                is_answered=request.acks != 0,
            )
            contents[link].append(frame.content)
            sent.append((request, link, frame))
        fetch: Frame | None = None
        if fetches is not None and not opened[0].is_over:
            fetch = self._fetch_frame(opened[0], fetches)
            contents[opened[0]].append(fetch.content)
        for link, frames in contents.items():
            await self._write(link, b"".join(frames))
        if closes:
            self._ledger.counts["closed"] += 1
            opened[0].close()
        for request, link, frame in sent:
            if frame.answer is not None:
                await self._settle(request, link, frame)
        if fetches is not None and fetch is not None:
            before = requests if links == 1 else ()  # others may be acknowledged after the fetch
            await self._check_fetch(opened[0], fetch, fetches, before)

    def _note_attempt(self, batch: Batch, link: KafkaLink, behind: set[Place], links: int) -> None:
        """Record that a batch is sent, and if an earlier one of its producer may be missing."""
        notes = self._application.notes
        if not batch.attempts and batch.kind is not Kind.REPEAT:
            # only a producer id orders batches of different connections
            name = self._name if batch.sequence >= 0 else link.name
            for value in batch.values:
                notes.history.invoke(name, batch.place, value, at=notes.now_ns())
        batch.attempts += 1
        batch.code = None
        if batch.kind is Kind.NEXT:
            batch.may_be_out_of_order = batch.place in behind or links > 1
            behind.add(batch.place)

    async def _link(self, address: str, number: int) -> KafkaLink:
        link = self._links.get((address, number))
        if link is None or link.is_over:
            self._links_opened += 1
            name = f"{self._name}/{self._links_opened}"
            link = await KafkaLink.open(self._application.runtime, address, name)
            self._links[address, number] = link
        return link

    async def _write(self, link: KafkaLink, content: bytes) -> None:
        """Write bytes, cut at drawn places, at once or with pauses."""
        cuts = [
            self._entropy.below(len(content) + 1) for _ in range(self._entropy.below(PIECES_MAX))
        ]
        if not content:
            return
        edges = [0, *sorted(cuts if self._chance(0.5) else []), len(content)]
        pieces = [content[low:high] for low, high in pairwise(edges)]
        pauses = self._chance(0.4)
        for piece in pieces:
            link.write([piece])
            if pauses and len(pieces) > 1:
                await asyncio.sleep(self._entropy.below(20) / 1000)

    async def _settle(self, request: PipelinedRequest, link: KafkaLink, frame: Frame) -> None:
        """Wait for a response and process it."""
        timeout_ms = self._application.workload.request_timeout_ms
        try:
            answer = await link.answer(frame, timeout_ms=timeout_ms)
        except StreamBroken as error:
            self._application.notes.note(error)
            return
        results = [part for topic in answer.responses for part in topic.partition_responses]
        if len(results) != len(request.batches):
            raise Violation("WrongResponse", f"{len(results)} results: {request.batches}")
        for batch in request.batches:
            index = UNKNOWN_PARTITION if batch.kind is Kind.ELSEWHERE else batch.place[1]
            found = [one for one in results if one.index == index]
            if not found:
                raise Violation("WrongResponse", f"no result of {batch.place}: {results}")
            result = found[0] if len(found) == 1 else results[request.batches.index(batch)]
            batch.code = int(result.error_code)
            if batch.code:
                self._check_code(batch, batch.code, request.version)
                self._application.notes.errors[f"kafka {batch.code}"] += 1
            else:
                self._acknowledged(batch, int(result.base_offset))

    # --- outcomes ------------------------------------------------------------------------------

    def _acknowledged(self, batch: Batch, offset: int) -> None:
        """Check and record an acknowledgement."""
        ledger, notes, place = self._ledger, self._application.notes, batch.place
        plan = self._application.options.topic(place[0])
        end = offset + len(batch.values)
        if batch.kind in NEVER_STORED:
            raise Violation("AcceptedInvalid", f"{batch.kind} batch at {place} {offset}")
        is_all = batch.acks == ALL
        if is_all and not plan.is_compacted and end > ledger.committed_end(*place):
            raise Violation(
                "AcknowledgedAboveHighWatermark",
                f"{place} [{offset}, {end}), committed below {ledger.committed_end(*place)}",
            )
        if end > ledger.written_end(*place):
            raise Violation("AcknowledgedBeyondLog", f"{place} [{offset}, {end}) in no log")
        if batch.kind is Kind.REPEAT:
            ledger.counts["repeats"] += 1
            if offset != batch.base_offset:
                raise Violation(
                    "DuplicateElsewhere", f"{place}: {offset}, stored at {batch.base_offset}"
                )
            return
        batch.base_offset = offset
        for number, value in enumerate(batch.values):
            is_promise = is_all and plan.is_strict
            at = offset + number
            notes.history.acknowledge(value, at, at=notes.now_ns(), is_promise=is_promise)
            if is_promise and ledger.committed.setdefault((place, at), value) != value:
                raise Violation("WrongRecord", f"{place} {at} is acknowledged for two records")
            if batch.attempts == 1:
                ledger.written[place, value] = at
        ledger.counts["pipelined"] += 1
        if is_all and batch.kind is Kind.NEXT:
            self._last[place] = batch

    def _failed(self, batch: Batch) -> None:
        """Record that a batch is not repeated."""
        if batch.kind is Kind.REPEAT or not batch.attempts:
            return
        notes = self._application.notes
        for value in batch.values:
            notes.history.fail(value, at=notes.now_ns(), is_certain=batch.kind in NEVER_STORED)

    def _is_certain(self, place: Place) -> bool:
        """Return True if no acknowledged batch of this producer may be lost."""
        plan = self._application.options.topic(place[0])
        return self._uses_all and plan.is_strict and not plan.is_inner

    def _check_code(self, batch: Batch, code: int, version: int) -> None:
        """Raise Violation unless the situation explains an error code."""
        allowed = set(OF_LEADERS | OF_WAITS[batch.acks])
        if version >= BY_ID:
            allowed.add(UNKNOWN_TOPIC_ID)
        if self._ledger.has_device_faults():
            allowed.add(STORAGE)
        if batch.kind is Kind.DAMAGED:
            allowed.add(CORRUPT)
        if batch.kind is Kind.TRANSACTIONAL:
            allowed |= OF_TRANSACTIONS | OF_SEQUENCES
        if batch.kind is Kind.GAP or not self._is_certain(batch.place):
            allowed |= OF_SEQUENCES
        if batch.kind is Kind.NEXT and batch.may_be_out_of_order:
            allowed |= OF_SEQUENCES
        if batch.sequence < 0:
            allowed -= OF_SEQUENCES
        if code not in allowed:
            raise Violation(
                "UnexpectedError",
                f"error {code} of a {batch.kind} batch, acks {batch.acks}, attempt"
                f" {batch.attempts}, to {batch.place}",
            )

    async def _resolve(self, batches: list[Batch]) -> bool:
        """Repeat batches in order until each is stored. Return False if that was given up."""
        application, clock = self._application, self._application.runtime.clock
        limit_ms = min(RESOLVE_MS_MAX, application.workload.delivery_timeout_ms)
        end_ms = clock.now_ms() + limit_ms
        while batches and clock.now_ms() < end_ms:
            if any(one.code in OF_SEQUENCES and not one.may_be_out_of_order for one in batches):
                break
            self._ledger.counts["repeated"] += len(batches)
            await application.look(self._client)
            shares: dict[str, list[PipelinedRequest]] = {}
            for batch in batches:
                address = self._client.address_of(batch.place)
                if address is not None:
                    request = PipelinedRequest(self._draw_version(), batch.acks, [batch])
                    shares.setdefault(address, []).append(request)
            for address, requests in shares.items():
                try:
                    await self._exchange(address, requests)
                except QuorumlogError as error:
                    application.notes.note(error)
            batches = [one for one in batches if one.code != 0]
        for batch in batches:
            self._failed(batch)
        return not batches

    # --- fetches -------------------------------------------------------------------------------

    def _fetch_frame(self, link: KafkaLink, place: Place) -> Frame:
        last = self._last.get(place)
        position = 0 if last is None else last.base_offset
        fields = fetch_fields({place: position}, part_bytes_max=FETCH_BYTES)
        return link.frame(FETCH, self._client.versions[FETCH], fields)

    async def _check_fetch(
        self, link: KafkaLink, frame: Frame, place: Place, requests: Sequence[PipelinedRequest]
    ) -> None:
        """Check that a fetch has a high watermark behind all batches acknowledged before it."""
        application = self._application
        try:
            answer = await link.answer(frame, timeout_ms=application.workload.request_timeout_ms)
        except StreamBroken as error:
            application.notes.note(error)
            return
        (part,) = [part for one in answer.responses for part in one.partitions]
        if part.error_code:
            if part.error_code != OUT_OF_RANGE or application.options.topic(place[0]).is_strict:
                application.note(int(part.error_code), place)
            return
        found = fetched(part, 0, READ_UNCOMMITTED)
        self._ledger.counts["fetches"] += 1
        ends = [
            batch.base_offset + len(batch.values)
            for request in requests
            for batch in request.batches
            if batch.place == place and batch.acks == ALL and batch.code == 0
        ]
        if max(ends, default=0) > found.end:
            raise Violation(
                "ReadBehindAcknowledged",
                f"{place}: high watermark {found.end} behind an acknowledged end {max(ends)}",
            )
        for offset, value in found.records:
            other = self._ledger.committed.get((place, offset), value)
            if other != value:
                raise Violation("WrongRecord", f"{place} {offset}: {value[:20]!r}, {other[:20]!r}")

    def _chance(self, probability: float) -> bool:
        return self._entropy.uniform(0, 1) < probability
