"""Kafka clients that write and read like those of level `node`, with the same history.

Producers number their batches, and repeat a batch with its number until it is acknowledged or times
out: so no batch is stored twice.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from quorumlog.clients.config import ISOLATION_LEVELS
from quorumlog.errors import ConnectionFailed, QuorumlogError
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place

from ...checkers.violation import Violation
from ...cluster.options import ClusterOptions, Workload
from ..node.application import RETRY_S, TIRED, Notes
from ..transactions.committed_reads import READ_COMMITTED, READ_UNCOMMITTED
from ..transactions.plan import EXTRA_CONFIGS
from .client import KafkaClient, ProducerId
from .pipelines import PipelinedProducer, PipelineLedger

CERTAINLY_REFUSED: Final = frozenset({10, 18, 87})  # too large: batch, list; invalid record
# of sequence numbers: a new producer id is needed
LOST_ITS_PLACE: Final = frozenset({45, 46, 47, 59})
OFFSET_OUT_OF_RANGE: Final = 1
NEVER: Final = frozenset({-1, OFFSET_OUT_OF_RANGE, 2, 35, 42, 43, 76})  # no fault explains these


@dataclass(slots=True)
class KafkaApplication:
    """The clients of one machine; compare `levels.node.application.Application`."""

    runtime: Runtime
    name: str
    bootstrap: str
    options: ClusterOptions
    workload: Workload
    notes: Notes
    ledger: PipelineLedger | None = None  # None: no pipelined producers
    has_ended: bool = False

    async def run(self) -> None:
        """Write and read until the run is over, then wait for the end."""
        async with self.runtime.tasks.scope("application") as scope:
            for number in range(self.workload.readers):
                name = f"{self.name}.kr{number}"
                scope.spawn(self._read(name), name=name)
            async with self.runtime.tasks.scope("producing") as producing:
                for number in range(self.workload.producers):
                    name = f"{self.name}.kp{number}"
                    producing.spawn(self._produce(name), name=name)
                if self.ledger is not None:
                    name = f"{self.name}.pipeline"
                    producing.spawn(self._pipelined(name, self.ledger).run(), name=name)
            self.has_ended = True
        await asyncio.Event().wait()

    async def read_all(self) -> dict[Place, list[tuple[int, bytes]]]:
        """Read every partition with a new client, from its start to its end."""
        client = self._client(f"{self.name}.last")
        stored: dict[Place, list[tuple[int, bytes]]] = {}
        for place in self.options.places:
            stored[place] = await self._read_partition(client, place)
        client.close()
        return stored

    async def prove_writable(self, places: list[Place]) -> None:
        """Write one record to each of these partitions, with retries until it is acknowledged."""
        name = f"{self.name}.proof"
        producer = _Producer(self, name, self._client(name), self.runtime.entropy.stream(name))
        for place in places:
            while not await producer.write(place, [self.notes.next_value(name, 0)]):
                await self.look(producer.client)
        producer.client.close()

    async def find(self, client: KafkaClient, place: Place) -> str:
        """Return the address of a partition's leader, with retries."""
        while (address := client.address_of(place)) is None:
            await self.look(client)
        return address

    async def look(self, client: KafkaClient) -> None:
        """Refresh the metadata, after a pause."""
        await asyncio.sleep(RETRY_S)
        try:
            await client.look([topic.name for topic in self.options.topics])
        except QuorumlogError as error:
            self.notes.note(error)

    def note(self, code: int, place: Place) -> None:
        """Count an error; raises Violation if no fault explains it."""
        self.notes.errors[f"kafka {code}"] += 1
        if code in NEVER and self.options.topic(place[0]).is_strict:
            raise Violation("KafkaError", f"no fault explains error {code} of {place}")

    # --- inside --------------------------------------------------------------------------------

    def _client(self, name: str) -> KafkaClient:
        return KafkaClient(
            self.runtime,
            self.bootstrap.split(","),
            name=name,
            timeout_ms=self.workload.request_timeout_ms,
            codec=Codec[self.workload.compression.upper()],
        )

    async def _produce(self, name: str) -> None:
        workload, entropy = self.workload, self.runtime.entropy.stream(name)
        producer = _Producer(self, name, self._client(name), entropy)
        while not self.notes.is_over:
            await producer.burst()
            pause_ms = entropy.uniform(*workload.pause_ms)
            is_tired = self.notes.values > workload.records_max
            await asyncio.sleep(pause_ms / 1000 * (TIRED if is_tired else 1))
        producer.client.close()

    def _pipelined(self, name: str, ledger: PipelineLedger) -> PipelinedProducer:
        places = [*self.options.places, *((name, 0) for name in EXTRA_CONFIGS)]
        names = {topic.name for topic in self.options.topics}
        return PipelinedProducer(
            self,
            name,
            self._client(name),
            self.runtime.entropy.stream(name),
            ledger,
            [place for place in places if place[0] in names],
        )

    async def _read(self, name: str) -> None:
        """Follow all topics; sometimes start again with a new client."""
        entropy, clock = self.runtime.entropy.stream(name), self.runtime.clock
        low, high = self.workload.reader_lives_ms
        while not self.notes.is_over:
            self.notes.readers += 1
            life = f"{name}/{self.notes.readers}"
            client = self._client(life)
            positions = dict.fromkeys(self.options.places, 0)
            isolation = self._isolation if self.notes.readers % 2 else READ_UNCOMMITTED
            end_ms = clock.now_ms() + low + entropy.below(high - low)
            while clock.now_ms() < end_ms and not self.notes.is_over:
                if not await self._read_on(client, positions, life, isolation):
                    break
            client.close()

    @property
    def _isolation(self) -> int:
        """The isolation level of a complete read: in a run with transactions, committed data."""
        return READ_UNCOMMITTED if self.notes.uncommitted is None else READ_COMMITTED

    async def _read_on(
        self, client: KafkaClient, positions: dict[Place, int], life: str, isolation: int
    ) -> bool:
        """Fetch once from every leader. Return True if the reader continues."""
        shares: dict[str, dict[Place, int]] = {}
        for place, offset in positions.items():
            address = client.address_of(place)
            if address is not None:
                shares.setdefault(address, {})[place] = offset
        is_current = sum(map(len, shares.values())) == len(positions)
        history = self.notes.reads(ISOLATION_LEVELS[isolation == READ_UNCOMMITTED])
        for address, share in shares.items():
            try:
                found = await client.fetch(address, share, isolation=isolation)
            except QuorumlogError as error:
                self.notes.note(error)
                is_current = False
                continue
            for place, part in found.items():
                if part.code == OFFSET_OUT_OF_RANGE and not self.options.topic(place[0]).is_strict:
                    return False  # records it saw were lost, which is allowed here
                if part.code:
                    self.note(part.code, place)
                    is_current = False
                    continue
                positions[place] = part.position
                if part.records:
                    history.poll(life, place, part.records, at=self.notes.now_ns())
        if not is_current:
            await self.look(client)
        return True

    async def _read_partition(self, client: KafkaClient, place: Place) -> list[tuple[int, bytes]]:
        stored: list[tuple[int, bytes]] = []
        position = 0
        while True:
            address = await self.find(client, place)
            try:
                fetched = await client.fetch(address, {place: position}, isolation=self._isolation)
            except QuorumlogError as error:
                self.notes.note(error)
                await self.look(client)
                continue
            part = fetched[place]
            if part.code:
                self.note(part.code, place)
                await self.look(client)
                continue
            stored += part.records
            position = part.position
            if position >= part.end:
                return stored


@dataclass(slots=True)
class _Producer:
    """A producer: its id, and the sequence numbers of its batches."""

    application: KafkaApplication
    name: str
    client: KafkaClient
    entropy: Entropy
    identity: ProducerId | None = None  # None: a new one is needed
    sequences: dict[Place, int] = field(default_factory=dict)

    async def burst(self) -> None:
        """Write some batches, to several partitions at once."""
        workload, options = self.application.workload, self.application.options
        shares: dict[Place, list[bytes]] = {}
        for _ in range(1 + self.entropy.below(workload.burst_max)):
            place = options.places[self.entropy.below(len(options.places))]
            size = self.entropy.below(workload.value_size_max + 1)
            value = self.application.notes.next_value(self.name, size)
            shares.setdefault(place, []).append(value)
        await asyncio.gather(*(self.write(place, values) for place, values in shares.items()))

    async def write(self, place: Place, values: list[bytes]) -> bool:
        """Send a batch until its outcome is known or it times out. Return True if it is stored."""
        notes = self.application.notes
        for value in values:
            notes.history.invoke(self.name, place, value, at=notes.now_ns())
        base_offset, is_certain = await self._deliver(place, values)
        for number, value in enumerate(values):
            if base_offset >= 0:
                is_promise = self.application.options.topic(place[0]).is_strict
                offset = base_offset + number
                notes.acknowledged[place] += 1
                notes.history.acknowledge(value, offset, at=notes.now_ns(), is_promise=is_promise)
            else:
                notes.history.fail(value, at=notes.now_ns(), is_certain=is_certain)
        return base_offset >= 0

    async def _deliver(self, place: Place, values: list[bytes]) -> tuple[int, bool]:
        """Return (offset, True) if stored, else (-1, True if it is certainly not stored)."""
        application, clock = self.application, self.application.runtime.clock
        end_ms = clock.now_ms() + application.workload.delivery_timeout_ms
        acks = -1 if application.options.topic(place[0]).is_strict else 1
        identity, may_be_stored, sequence = None, False, 0
        while clock.now_ms() < end_ms:
            try:
                if identity is None:
                    identity = await self._identity()
                    sequence = self.sequences.get(place, 0)
                if identity is not self.identity:
                    break  # another batch has lost its place: this one is not repeated either
                await application.find(self.client, place)
                code, offset = await self.client.produce(
                    place, values, acks=acks, producer=identity, sequence=sequence
                )
            except QuorumlogError as error:
                may_be_stored |= not isinstance(error, ConnectionFailed)
                application.notes.note(error)
                await application.look(self.client)
                continue
            if not code:
                self.sequences[place] = sequence + len(values)
                return offset, True
            application.note(code, place)
            if code in CERTAINLY_REFUSED:
                return -1, not may_be_stored
            may_be_stored = True
            if code in LOST_ITS_PLACE:
                break
            await application.look(self.client)
        self.identity = None
        self.sequences = {}
        return -1, not may_be_stored

    async def _identity(self) -> ProducerId:
        if self.identity is None:
            identity = await self.client.producer_id()
            if self.identity is None:  # another task of the burst may have got one
                self.identity = identity
                self.sequences = {}
        return self.identity
