"""Offsets in force: of several commits to a group, the one with the last record counts.

One program commits offsets of one partition to a new group in turn: plain ones and pending ones of
up to three transactions, one request at a time, and ends the transactions in a drawn order. So the
order of the records is known, and with it the offset that must be in force, at once and for ever.
While a commit is pending, no stable offset may be returned, unless an operator has aborted the
transactions of all pending commits. A group with an unknown result, or with such an abort, is left
unchanged.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.ids import ProducerIdentity
from quorumlog.records.compression import Codec
from quorumlog.runtime import Entropy, Runtime
from quorumlog.testing.checkers import Place

from ...checkers.violation import Violation
from ..groups.calls import GroupCalls
from ..kafka.client import KafkaClient
from . import calls
from .calls import Generation, TransactionCalls
from .producer import Observations

TIMEOUT_MS: Final = 3_000
RETRY_S: Final = 0.2
RETRIES_MAX: Final = 30
TRANSACTION_TIMEOUT_MS: Final = 60_000  # longer than a round
KEPT: Final = 12  # groups that are fetched again later


class GivenUp(Exception):
    """A result is unknown, or an operator has aborted a transaction."""


@dataclass(slots=True)
class OffsetProducer:
    """One transactional producer of a group."""

    sender: TransactionCalls
    transactional_id: str
    identity: ProducerIdentity
    offset: int = -1  # the last pending one
    order: int = -1  # of its record
    is_added: bool = False


@dataclass(slots=True)
class OffsetOrder:
    """The program; `kept` has the offset in force of each finished group."""

    observed: Observations
    bootstrap: list[str]
    place: Place
    is_over: bool = False
    kept: dict[str, int] = field(default_factory=dict)

    async def run(self, runtime: Runtime) -> None:
        """Fill one group after the other until the run is over."""
        number = 0
        while not self.is_over:
            number += 1
            try:
                await self._fill(runtime, number)
                self.observed.counts["ordered"] += 1
            except (GivenUp, QuorumlogError) as error:
                self.observed.errors[f"order {type(error).__name__}"] += 1
            await asyncio.sleep(RETRY_S)

    async def look_at_all(self, runtime: Runtime) -> None:
        """Fetch the offsets of all finished groups again."""
        client = self._client(runtime, "order again")
        sender = self._sender(runtime, client, "order again", Generation.NEW)
        for group, expected in self.kept.items():
            await self._expect(sender, group, expected)
        sender.close()

    async def expect_unstable(self, pending: list[OffsetProducer], group: str) -> None:
        """Fetch while the commits of these producers are pending: no offset may be returned.

        Raises GivenUp if an operator has aborted all of them. Then no EndTxn may commit.
        """
        code, found = await pending[0].sender.fetch_offsets(group, [self.place])
        if code:
            return
        for one in pending:
            is_aborted = one.transactional_id in self.observed.operator_aborts
            if not is_aborted or not await self._end(one, is_commit=True):
                raise Violation(
                    "UnstableOffset",
                    f"{group}: {found} was returned while {one.transactional_id} had a pending"
                    " commit",
                )
        raise GivenUp("an operator aborted every pending commit")

    # --- inside --------------------------------------------------------------------------------

    def _client(self, runtime: Runtime, name: str) -> KafkaClient:
        return KafkaClient(
            runtime, self.bootstrap, name=name, timeout_ms=TIMEOUT_MS, codec=Codec.NONE
        )

    def _sender(
        self, runtime: Runtime, client: KafkaClient, name: str, generation: Generation
    ) -> TransactionCalls:
        return TransactionCalls(runtime, client, name, generation, timeout_ms=TIMEOUT_MS)

    async def _fill(self, runtime: Runtime, number: int) -> None:
        group, entropy = f"order-{number}", runtime.entropy.stream(f"order/{number}")
        client = self._client(runtime, group)
        plain = GroupCalls(runtime, client, group, timeout_ms=TIMEOUT_MS)
        producers: list[OffsetProducer] = []
        try:
            for index in range(1 + entropy.below(3)):
                generation = Generation.NEW if entropy.below(2) else Generation.OLD
                name = f"{group}-{index}"
                sender = self._sender(runtime, client, name, generation)
                producers.append(OffsetProducer(sender, name, await self._init(sender, name)))
            expected = await self._commit_in_turn(group, plain, producers, entropy)
            self.kept[group] = expected
            await self._expect(producers[0].sender, group, expected)
            while len(self.kept) > KEPT:
                del self.kept[next(iter(self.kept))]
        finally:
            plain.close()
            for producer in producers:
                producer.sender.close()

    async def _commit_in_turn(
        self,
        group: str,
        plain: GroupCalls,
        producers: list[OffsetProducer],
        entropy: Entropy,
    ) -> int:
        """Commit, end the transactions, and return the offset in force."""
        in_force = (-1, -1)  # order of its record, offset
        for order in range(2 + entropy.below(5)):
            offset = 1 + entropy.below(1_000)
            index = entropy.below(len(producers) + 1)
            if index == len(producers):
                await self._commit_plain(plain, offset)
                in_force = (order, offset)
            else:
                await self._commit_pending(group, producers[index], offset)
                producers[index].offset, producers[index].order = offset, order
        left = [one for one in producers if one.order >= 0]
        while left:
            if entropy.below(2):
                await self.expect_unstable(left, group)
            one = left.pop(entropy.below(len(left)))
            is_commit = entropy.below(4) > 0
            await self._retry(lambda one=one, is_commit=is_commit: self._end(one, is_commit))
            if is_commit:
                in_force = max(in_force, (one.order, one.offset))
        return in_force[1]

    async def _init(self, sender: TransactionCalls, name: str) -> ProducerIdentity:
        found: list[ProducerIdentity] = []

        async def ask() -> int:
            code, identity = await sender.init_producer_id(name, TRANSACTION_TIMEOUT_MS)
            found.append(identity)
            return code

        await self._retry(ask, is_repeatable=True)
        return found[-1]

    async def _commit_plain(self, plain: GroupCalls, offset: int) -> None:
        async def ask() -> int:
            return (await plain.commit("", "", -1, {self.place: (offset, "")}))[self.place]

        await self._retry(ask)

    async def _commit_pending(self, group: str, one: OffsetProducer, offset: int) -> None:
        sender, name = one.sender, one.transactional_id
        if sender.generation is Generation.OLD and not one.is_added:
            await self._retry(
                lambda: sender.add_offsets(name, one.identity, group), is_repeatable=True
            )
            one.is_added = True
        await self._retry(
            lambda: sender.commit_offsets(name, one.identity, group, {self.place: offset})
        )

    async def _end(self, one: OffsetProducer, is_commit: bool) -> int:
        code, _ = await one.sender.end(one.transactional_id, one.identity, is_commit=is_commit)
        return code

    async def _retry(self, ask, *, is_repeatable: bool = False) -> None:  # type: ignore[no-untyped-def]
        """Repeat a request while it is certainly without effect; raises GivenUp."""
        for _ in range(RETRIES_MAX):
            try:
                code = await ask()
            except QuorumlogError:
                if not is_repeatable:
                    raise
                code = calls.TIMED_OUT
            if not code:
                return
            repeatable = calls.RETRIABLE if is_repeatable else {calls.CONCURRENT}
            if code not in repeatable:
                raise GivenUp(f"error {code}")
            await asyncio.sleep(RETRY_S)
        raise GivenUp("too many retries")

    async def _expect(self, sender: TransactionCalls, group: str, expected: int) -> None:
        """Fetch the offset in force, with retries, and compare."""
        while True:
            try:
                code, found = await sender.fetch_offsets(group, [self.place])
            except QuorumlogError:
                code, found = calls.TIMED_OUT, {}
            if not code:
                break
            await asyncio.sleep(RETRY_S)
        self.observed.counts["ordered looks"] += 1
        if max(found[self.place], -1) != expected:
            raise Violation(
                "OffsetOrder",
                f"{group}: {found[self.place]} is in force, the last record has {expected}",
            )
