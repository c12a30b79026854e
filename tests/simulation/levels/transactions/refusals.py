"""Requests of producers that must be refused, each with its error of the Kafka protocol.

Without faults every refusal has one reason: the identity, the state of the transaction, or the
partition. A refused request changes nothing, so a following one succeeds.
"""

from collections.abc import Sequence
from typing import Final

from quorumlog.ids import ProducerIdentity
from quorumlog.testing.checkers import Place

from ...checkers.violation import Violation
from . import calls
from .calls import Generation, TransactionCalls

UNKNOWN_PARTITION: Final = 3
INVALID_TIMEOUT: Final = 50
NOT_ATTEMPTED: Final = 55
TIMEOUT_MS: Final = 2_000
FENCED: Final = frozenset({calls.INVALID_EPOCH, calls.FENCED})
NOT_IN_TRANSACTION: Final = frozenset({calls.INVALID_TXN_STATE, calls.ABORTABLE})
"""The error of a write to a partition that was not added, for old clients and for new ones."""


class Refusals:
    """The requests of one transactional id, to partitions of a new topic."""

    def __init__(self, sender: TransactionCalls, name: str, places: Sequence[Place]) -> None:
        self._calls = sender
        self._name = name
        self._places = places

    @property
    def _is_old(self) -> bool:
        return self._calls.generation is Generation.OLD

    async def play(self) -> None:
        """Send all of them; raises Violation."""
        first, place = await self._init(), self._places[0]
        for timeout_ms in (0, 1 << 30):
            code, _ = await self._calls.init_producer_id(self._name, timeout_ms)
            _expect("a timeout out of range", code, {INVALID_TIMEOUT})
        following = await self._init()
        if following != first._replace(producer_epoch=first.producer_epoch + 1):
            raise Violation("Identity", f"{following} follows {first}")
        other = following._replace(producer_id=following.producer_id + 1_000_000)
        await self._refuse_all("a fenced producer", first, FENCED)
        await self._refuse_all("an unknown producer id", other, {calls.INVALID_MAPPING})
        code, _ = await self._calls.end(self._name, following, is_commit=True)
        _expect("a commit without a transaction", code, {calls.INVALID_TXN_STATE})
        if self._is_old:
            await self._refuse_partitions(following)
        _expect("a write", await self._write(following, place), {calls.NONE})
        # The transaction is open, and its identity the same.
        await self._refuse_all("a fenced producer", first, FENCED)
        await self._refuse_all("an unknown producer id", other, {calls.INVALID_MAPPING})
        code, last = await self._calls.end(self._name, following, is_commit=True)
        _expect("a commit", code, {calls.NONE})
        if not self._is_old:
            raised = following._replace(producer_epoch=following.producer_epoch + 1)
            if last != raised:
                raise Violation("Identity", f"{last} follows {following}")

    async def write_all(self) -> None:
        """Write one transaction to every partition."""
        producer = await self._init()
        for place in self._places:
            _expect("a write", await self._write(producer, place), {calls.NONE})
        code, _ = await self._calls.end(self._name, producer, is_commit=True)
        _expect("a commit", code, {calls.NONE})

    async def _init(self) -> ProducerIdentity:
        code = calls.CONCURRENT
        while code == calls.CONCURRENT:
            code, producer = await self._calls.init_producer_id(self._name, TIMEOUT_MS)
        _expect("an identity", code, {calls.NONE})
        return producer

    async def _write(self, producer: ProducerIdentity, place: Place) -> int:
        if self._is_old:
            code = await self._calls.add_partitions(self._name, producer, [place])
            if code:
                return code
        return await self._produce(producer, place)

    async def _produce(self, producer: ProducerIdentity, place: Place) -> int:
        code, _ = await self._calls.produce(
            place, [(None, b"")], transactional_id=self._name, producer=producer, sequence=0
        )
        return code

    async def _refuse_all(
        self, description: str, producer: ProducerIdentity, expected: frozenset[int] | set[int]
    ) -> None:
        """Send each request of an identity that is not current."""
        for is_commit in (True, False):
            code, _ = await self._calls.end(self._name, producer, is_commit=is_commit)
            _expect(f"an end by {description}", code, expected)
        code = await self._produce(producer, self._places[1])
        _expect(f"a write by {description}", code, expected)
        if self._is_old:
            code = await self._calls.add_partitions(self._name, producer, [self._places[1]])
            _expect(f"a partition by {description}", code, expected)

    async def _refuse_partitions(self, producer: ProducerIdentity) -> None:
        place, missing = self._places[0], (self._places[0][0], 1_000)
        code = await self._calls.add_partitions(self._name, producer, [place, missing])
        _expect("a partition beside a missing one", code, {NOT_ATTEMPTED})
        code = await self._calls.add_partitions(self._name, producer, [missing])
        _expect("a missing partition", code, {UNKNOWN_PARTITION})
        code = await self._produce(producer, place)
        _expect("a write without a transaction", code, NOT_IN_TRANSACTION)
        code = await self._calls.add_partitions(self._name, producer, [place])
        _expect("a partition", code, {calls.NONE})
        code = await self._produce(producer, self._places[2])
        _expect("a write to a partition that was not added", code, NOT_IN_TRANSACTION)


def _expect(description: str, code: int, expected: frozenset[int] | set[int]) -> None:
    if code not in expected:
        raise Violation("Refusal", f"{description}: error {code} in place of {sorted(expected)}")
