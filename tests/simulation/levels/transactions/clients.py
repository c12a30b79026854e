"""The machines beside the applications: plain writers, readers of committed data, operators."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quorumlog.errors import QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.testing.checkers import GroupPlace, Place

from ...checkers.transaction_logs import LogBatch, batches_of
from ...checkers.violation import Violation
from ...cluster.options import ClusterOptions, Workload
from ..kafka.client import KafkaClient
from ..node.application import Application, Notes
from . import calls
from .application import ApplicationState
from .calls import Generation, TransactionCalls
from .committed_reads import READ_COMMITTED, READ_UNCOMMITTED, committed_part
from .plan import DELETED, EXTRA_CONFIGS, INPUT
from .producer import Observations

RETRY_S: Final = 0.2
TIMEOUT_MS: Final = 3_000
READER_LIFE_MS: Final = (4_000, 30_000)
DELETE_MS: Final = (500, 6_000)  # between deletion and creation, and the next deletion


@dataclass(slots=True)
class PlainMachine:
    """Creates the topics, and writes plain records into the input with the Python client."""

    runtime: Runtime
    name: str
    bootstrap: str
    options: ClusterOptions
    workload: Workload
    notes: Notes
    _writers: Application | None = None

    @property
    def has_ended(self) -> bool:
        """True if the producers have stopped."""
        return self._writers is not None and self._writers.has_ended

    async def run(self) -> None:
        """Create the topics, write until the run is over, then wait for the end."""
        log = await self._application(self.options).connect()
        await self._application(self.options).find_topics(log)
        for topic in self.options.topics:
            if topic.name in EXTRA_CONFIGS:
                await self._create(log, topic.name, topic.configs | EXTRA_CONFIGS[topic.name])
        await log.close()
        topics = tuple(topic for topic in self.options.topics if topic.name == INPUT)
        self._writers = self._application(replace(self.options, topics=topics))
        await self._writers.run()

    async def prove_writable(self, places: list[Place]) -> None:
        """Write one record to each of these partitions, with retries until it is acknowledged."""
        await self._application(self.options).prove_writable(places)

    async def read_all(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Read nothing: another machine reads."""
        raise AssertionError("the plain machine does not read")

    async def delete_repeatedly(self, runtime: Runtime) -> None:
        """Delete the topic `deleted`, and create it again, until the run is over."""
        topic = next(topic for topic in self.options.topics if topic.name == DELETED)
        log = await self._application(self.options).connect()
        entropy = runtime.entropy.stream("deletions")
        while not self.notes.is_over:
            await asyncio.sleep(entropy.uniform(*DELETE_MS) / 1000)
            try:
                await log.admin.delete_topic(DELETED)
            except QuorumlogError as error:
                self.notes.note(error)
            await asyncio.sleep(entropy.uniform(*DELETE_MS) / 1000)
            await self._create(log, DELETED, topic.configs)
        await log.close()

    async def abort_repeatedly(
        self,
        runtime: Runtime,
        observed: Observations,
        states: list[ApplicationState],
        pause_ms: tuple[int, int],
    ) -> None:
        """Abort transactions of drawn producers, as `quorumlog transactions abort` does, until the
        run is over."""
        log = await self._application(self.options).connect()
        entropy = runtime.entropy.stream("aborts")
        while not self.notes.is_over:
            await asyncio.sleep(entropy.uniform(*pause_ms) / 1000)
            ids = states[entropy.below(len(states))].transactional_ids[-1:]
            try:
                if entropy.below(2):
                    listed = await log.admin.list_transactions(states=["Ongoing"])
                    ids = [each.name for each in listed]
                if ids:
                    name = ids[entropy.below(len(ids))]
                    observed.operator_aborts.add(name)  # before: an unknown result may be an abort
                    await log.admin.abort_transaction(name)
                    observed.counts["operator aborts"] += 1
            except QuorumlogError as error:
                self.notes.note(error)
        await log.close()

    async def _create(self, log: Any, name: str, configs: dict[str, str]) -> None:
        topic = next(topic for topic in self.options.topics if topic.name == name)
        while not self.notes.is_over:
            try:
                await log.admin.create_topic(
                    name,
                    partitions=topic.partitions,
                    replication=topic.replication,
                    configs=configs,
                    if_not_exists=True,
                )
            except QuorumlogError as error:
                self.notes.note(error)
                await asyncio.sleep(RETRY_S)
            else:
                return

    def _application(self, options: ClusterOptions) -> Application:
        return Application(
            runtime=self.runtime,
            name=self.name,
            bootstrap=self.bootstrap,
            options=options,
            workload=self.workload,
            notes=self.notes,
            creates=options is self.options,
        )


@dataclass(slots=True)
class Findings:
    """The results of the last reads, by new clients."""

    committed: dict[Place, list[tuple[int, bytes]]] = field(default_factory=dict)
    logs: dict[Place, list[LogBatch]] = field(default_factory=dict)
    offsets: dict[GroupPlace, int] = field(default_factory=dict)


@dataclass(slots=True)
class ReadingMachine:
    """Reads committed data while the run lasts, and everything at its end."""

    runtime: Runtime
    name: str
    bootstrap: list[str]
    places: list[Place]  # that keep all records
    observed: Observations
    notes: Notes
    has_ended: bool = False

    async def run(self) -> None:
        """Follow all partitions until the run is over, then wait for the end."""
        entropy = self.runtime.entropy.stream("reader")
        lives = 0
        while not self.notes.is_over:
            lives += 1
            low, high = READER_LIFE_MS
            end_ms = self.runtime.clock.now_ms() + low + entropy.below(high - low)
            await self._follow(f"{self.name}.r/{lives}", end_ms)
        self.has_ended = True
        await asyncio.Event().wait()

    async def prove_writable(self, places: list[Place]) -> None:
        """Write nothing: another machine writes."""
        raise AssertionError("the reading machine does not write")

    async def read_all(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Read nothing: see `find_all`."""
        raise AssertionError("use find_all")

    async def find_all(
        self, runtime: Runtime, places: list[Place], groups: dict[str, list[Place]]
    ) -> Findings:
        """Read all partitions, committed and as stored, and the groups' committed offsets."""
        client, found = self._client(runtime, "last"), Findings()
        for place in places:
            found.logs[place] = await self._read_log(client, place)
            found.committed[place] = await self._read_committed(client, place)
        sender = self._sender(runtime, client, "last offsets")
        for group, some in groups.items():
            offsets = await self._offsets_of(sender, group, some)
            found.offsets |= {(group, place): offset for place, offset in offsets.items()}
        sender.close()
        return found

    async def undecided(self, runtime: Runtime, places: list[Place]) -> list[str]:
        """Return the partitions with an undecided transaction, and the transactions that are not
        complete; those without an answer count."""
        client = self._client(runtime, "undecided")
        left: list[str] = []
        try:
            await client.look(sorted({place[0] for place in places}))
            for place in places:
                left += await self._undecided_in(client, place)
            sender = self._sender(runtime, client, "undecided")
            for address in self.bootstrap:
                code, some = await sender.open_transactions(address)
                left += some if not code else [f"error {code} of {address}"]
            sender.close()
        except QuorumlogError as error:
            left.append(f"{error!r}")
        client.close()
        return left

    async def fence_repeatedly(
        self, runtime: Runtime, states: list[ApplicationState], pause_ms: tuple[int, int]
    ) -> None:
        """End the transactions of drawn producers, as an operator's `fenceProducers` does."""
        entropy = runtime.entropy.stream("operator")
        client = self._client(runtime, "operator")
        sender = self._sender(runtime, client, "operator")
        while not self.notes.is_over:
            await asyncio.sleep(entropy.uniform(*pause_ms) / 1000)
            ids = states[entropy.below(len(states))].transactional_ids
            if not ids:
                continue
            try:
                await sender.init_producer_id(ids[-1], 1_000)
                self.observed.counts["fenced"] += 1
            except QuorumlogError as error:
                self.observed.errors[type(error).__name__] += 1
        sender.close()

    # --- inside --------------------------------------------------------------------------------

    def _client(self, runtime: Runtime, name: str) -> KafkaClient:
        return KafkaClient(
            runtime, self.bootstrap, name=name, timeout_ms=TIMEOUT_MS, codec=Codec.NONE
        )

    def _sender(self, runtime: Runtime, client: KafkaClient, name: str) -> TransactionCalls:
        return TransactionCalls(runtime, client, name, Generation.NEW, timeout_ms=TIMEOUT_MS)

    async def _follow(self, name: str, end_ms: int) -> None:
        """Read all partitions from their start, with one consumer."""
        client = self._client(self.runtime, name)
        positions = dict.fromkeys(self.places, 0)
        while self.runtime.clock.now_ms() < end_ms and not self.notes.is_over:
            shares: dict[str, dict[Place, int]] = {}
            for place, offset in positions.items():
                address = client.address_of(place)
                if address is not None:
                    shares.setdefault(address, {})[place] = offset
            is_current = sum(map(len, shares.values())) == len(positions)
            for address, share in shares.items():
                is_current &= await self._poll(client, name, address, share, positions)
            if not is_current:
                await self._look(client)
        client.close()

    async def _poll(
        self,
        client: KafkaClient,
        name: str,
        address: str,
        share: dict[Place, int],
        positions: dict[Place, int],
    ) -> bool:
        try:
            parts = await client.fetch_parts(address, share, isolation=READ_COMMITTED)
        except QuorumlogError as error:
            self.observed.errors[type(error).__name__] += 1
            return False
        is_current = True
        for place, part in parts.items():
            if part.error_code:
                self._note(int(part.error_code), place)
                is_current = False
                continue
            committed = committed_part(part, share[place])
            positions[place] = committed.position
            if committed.records:
                self.observed.history.records.poll(
                    name, place, committed.records, at=self.observed.now_ns()
                )
        return is_current

    def _note(self, code: int, place: Place) -> None:
        self.observed.errors[f"fetch {code}"] += 1
        if code in (-1, 1, 2, 35, 42):
            raise Violation("KafkaError", f"no fault explains error {code} of {place}")

    async def _look(self, client: KafkaClient) -> None:
        await asyncio.sleep(RETRY_S)
        try:
            await client.look(sorted({place[0] for place in self.places}))
        except QuorumlogError as error:
            self.observed.errors[type(error).__name__] += 1

    async def _read_log(self, client: KafkaClient, place: Place) -> list[LogBatch]:
        found: list[LogBatch] = []

        def take(part: Any, position: int) -> int:
            for batch in batches_of(part.records or b""):
                if batch.last_offset >= position:
                    found.append(batch)
                    position = batch.last_offset + 1
            return position

        await self._read(client, place, READ_UNCOMMITTED, take)
        return found

    async def _read_committed(self, client: KafkaClient, place: Place) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []

        def take(part: Any, position: int) -> int:
            committed = committed_part(part, position)
            found.extend(committed.records)
            return committed.position

        await self._read(client, place, READ_COMMITTED, take)
        return found

    async def _read(
        self,
        client: KafkaClient,
        place: Place,
        isolation: int,
        take: Callable[[Any, int], int],
    ) -> None:
        """Read a partition from its start to its end."""
        position = 0
        while True:
            part = await self._part(client, place, position, isolation)
            if part is None:
                continue
            if int(part.error_code) == 1 and part.log_start_offset > position:
                position = part.log_start_offset
                continue
            if part.error_code:
                self.observed.errors[f"fetch {int(part.error_code)}"] += 1
                if int(part.error_code) == 1:
                    position += 1  # the log starts later
                else:
                    await self._look_for(client, place)
                continue
            before, position = position, take(part, position)
            end = part.last_stable_offset if isolation else part.high_watermark
            if position >= end:
                return
            assert position > before or not part.records, f"stuck at {position} of {place}"

    async def _part(self, client: KafkaClient, place: Place, position: int, isolation: int) -> Any:
        address = client.address_of(place)
        if address is None:
            await self._look_for(client, place)
            return None
        try:
            parts = await client.fetch_parts(address, {place: position}, isolation=isolation)
        except QuorumlogError as error:
            self.observed.errors[type(error).__name__] += 1
            await self._look_for(client, place)
            return None
        return parts[place]

    async def _look_for(self, client: KafkaClient, place: Place) -> None:
        await asyncio.sleep(RETRY_S)
        try:
            await client.look([place[0]])
        except QuorumlogError as error:
            self.observed.errors[type(error).__name__] += 1

    async def _undecided_in(self, client: KafkaClient, place: Place) -> list[str]:
        address = client.address_of(place)
        if address is None:
            return [f"{place} has no leader"]
        parts = await client.fetch_parts(address, {place: 0}, isolation=READ_COMMITTED, wait_ms=0)
        part = parts[place]
        if int(part.error_code) == 1:  # the log starts later
            return []
        if part.error_code:
            return [f"error {int(part.error_code)} of {place}"]
        if part.last_stable_offset < part.high_watermark:
            return [f"{place}: stable to {part.last_stable_offset} of {part.high_watermark}"]
        return []

    async def _offsets_of(
        self, sender: TransactionCalls, group: str, places: list[Place]
    ) -> dict[Place, int]:
        while True:
            try:
                code, found = await sender.fetch_offsets(group, places)
            except QuorumlogError as error:
                self.observed.errors[type(error).__name__] += 1
                code, found = calls.TIMED_OUT, {}
            if not code:
                return found
            await asyncio.sleep(RETRY_S)
