"""The two checkers of transactional histories find the same kinds of anomalies in small histories,
valid ones and ones with planted anomalies."""

from collections.abc import Callable
from random import Random
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.checkers.transaction_relations import judged

from quorumlog.testing.checkers import (
    OffsetRead,
    Place,
    SendOutcome,
    Transaction,
    TransactionHistory,
    TransactionOutcome,
)

IN: Final[Place] = ("in", 0)
OUTS: Final[tuple[Place, ...]] = (("out", 0), ("out", 1))
GROUP: Final = "g"


class Cluster:
    """A correct log of three partitions, its clients and their history."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.history = TransactionHistory()
        self.final: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in (IN, *OUTS)}
        self.ends: dict[Place, int] = dict.fromkeys(self.final, 0)
        self.committed: dict[tuple[str, Place], int] = {(GROUP, IN): -1}
        self.processed: dict[str, list[Place]] | None = None
        self.incomplete: list[Place] = []
        self._now = 0
        self._positions: dict[tuple[str, Place], int] = {}
        for number in range(random.randint(1, 3)):
            self._plain(b"i%d" % number)
        for number in range(random.randint(1, 4)):
            self._transaction(f"t{number}")
            self._read_offset()
            self._poll()
        if random.random() < 0.5:
            self.processed = {GROUP: [IN]}
            self._process(self._begin("last"), TransactionOutcome.COMMITTED)
        if random.random() < 0.2:
            self.incomplete.append(random.choice(list(self.final)))

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _store(self, place: Place) -> int:
        self.ends[place] += 1
        return self.ends[place] - 1

    def _plain(self, value: bytes) -> None:
        records = self.history.records
        records.invoke("plain", IN, value, at=self._tick())
        if self.random.random() < 0.2:
            records.fail(value, at=self._tick(), is_certain=True)
            return
        offset = self._store(IN)
        self.final[IN].append((offset, value))
        if self.random.random() < 0.8:
            records.acknowledge(value, offset, at=self._tick())

    def _begin(self, name: str) -> Transaction:
        return self.history.begin(name, self.random.choice("pq"), at=self._tick())

    def _transaction(self, name: str) -> None:
        outcome = self.random.choice(list(TransactionOutcome))
        one = self._begin(name)
        if self.random.random() < 0.7:
            self._process(one, outcome)
        else:
            self._write(one, outcome)

    def _process(self, one: Transaction, outcome: TransactionOutcome) -> None:
        first = max(self.committed[GROUP, IN], 0)
        reads = [record for record in self.final[IN] if record[0] >= first]
        if self.random.random() < 0.5 and one.name != "last":
            reads = reads[:1]
        end = reads[-1][0] + 1 if reads else first
        one.reads += [(IN, offset, value) for offset, value in reads]
        if reads:
            one.offsets[GROUP, IN] = (first, end)
        if self._write(one, outcome) and reads:
            self.committed[GROUP, IN] = end

    def _write(self, one: Transaction, outcome: TransactionOutcome) -> bool:
        """Write the records of a transaction and end it; return True if it is committed."""
        records: list[tuple[Place, int, bytes]] = []
        for number in range(self.random.randint(0, 3)):
            place, value = self.random.choice(OUTS), f"{one.name}.{number}".encode()
            self.history.send(one, place, value, at=self._tick())
            records.append((place, self._store(place), value))
            if outcome is TransactionOutcome.COMMITTED or self.random.random() < 0.8:
                self.history.records.acknowledge(value, records[-1][1], at=self._tick())
        if outcome is TransactionOutcome.COMMITTED or self.random.random() < 0.7:
            self.history.request_commit(one, at=self._tick())
        is_committed = outcome is TransactionOutcome.COMMITTED or (
            outcome is TransactionOutcome.UNKNOWN
            and one.commit_requested_at >= 0
            and self.random.random() < 0.5
        )
        if is_committed:
            for place, offset, value in records:
                self.final[place].append((offset, value))
        for place in {place: None for place, _, _ in records}:
            self._store(place)  # the marker
        self.history.end(one, outcome, at=self._tick())
        if outcome is not TransactionOutcome.UNKNOWN:
            self.history.decided(one.name, is_commit=is_committed)
        return is_committed

    def _read_offset(self) -> None:
        if self.random.random() < 0.5:
            self.history.offset_reads.append(
                OffsetRead(GROUP, IN, self.committed[GROUP, IN], self._tick(), self._tick())
            )

    def _poll(self) -> None:
        consumer, place = self.random.choice("rs"), self.random.choice(OUTS)
        position = self._positions.get((consumer, place), -1)
        if position < 0 or self.random.random() < 0.2:
            self.history.records.assign(consumer, place)
            position = 0
        found = [record for record in self.final[place] if record[0] >= position]
        self._positions[consumer, place] = found[-1][0] + 1 if found else position
        self.history.records.poll(consumer, place, found, at=self._tick())


# --- planted anomalies ---------------------------------------------------------------------------


def drop_stored(cluster: Cluster, random: Random) -> None:
    if records := cluster.final[random.choice(list(cluster.final))]:
        records.pop(random.randrange(len(records)))


def repeat_stored(cluster: Cluster, random: Random) -> None:
    place = random.choice(list(cluster.final))
    if records := cluster.final[place]:
        records.append((cluster._store(place), random.choice(records)[1]))


def swap_stored(cluster: Cluster, random: Random) -> None:
    records = cluster.final[random.choice(list(cluster.final))]
    if len(records) > 1:
        at = random.randrange(len(records) - 1)
        (first, one), (second, other) = records[at : at + 2]
        records[at : at + 2] = [(first, other), (second, one)]


def store_unsent(cluster: Cluster, random: Random) -> None:
    place = random.choice(list(cluster.final))
    cluster.final[place].append((cluster._store(place), b"unsent"))


def store_sent(cluster: Cluster, random: Random) -> None:
    if sends := cluster.history.records.sends:
        send = random.choice(list(sends.values()))
        offset = send.offset if send.offset >= 0 else cluster._store(send.place)
        if not any(record[0] == offset for record in cluster.final[send.place]):
            cluster.final[send.place].append((offset, send.value))
            cluster.final[send.place].sort()


def change_outcome(cluster: Cluster, random: Random) -> None:
    if found := list(cluster.history.transactions.values()):
        random.choice(found).outcome = random.choice(list(TransactionOutcome))


def change_commit_time(cluster: Cluster, random: Random) -> None:
    if found := list(cluster.history.transactions.values()):
        random.choice(found).commit_requested_at = random.randint(-1, cluster._now + 1)


def change_send(cluster: Cluster, random: Random) -> None:
    if sends := cluster.history.records.sends:
        send = random.choice(list(sends.values()))
        send.outcome = random.choice(list(SendOutcome))
        is_stored = send.outcome is SendOutcome.OK
        send.offset = random.randrange(cluster.ends[send.place] + 1) if is_stored else -1


def change_reads(cluster: Cluster, random: Random) -> None:
    if found := list(cluster.history.transactions.values()):
        one = random.choice(found)
        if one.reads and random.random() < 0.5:
            one.reads.pop(random.randrange(len(one.reads)))
        elif records := [(at, *each) for at, some in cluster.final.items() for each in some]:
            one.reads.append(random.choice(records))


def change_range(cluster: Cluster, random: Random) -> None:
    if found := [one for one in cluster.history.transactions.values() if one.offsets]:
        first = random.randint(0, 3)
        random.choice(found).offsets[GROUP, IN] = (first, first + random.randint(0, 2))


def change_poll(cluster: Cluster, random: Random) -> None:
    if found := [poll for poll in cluster.history.records.polls if poll.records]:
        poll = random.choice(found)
        at = random.randrange(len(poll.records))
        offset, value = poll.records[at]
        others = [b"unsent", *cluster.history.records.sends]
        poll.records[at : at + 1] = random.choice(
            [
                [],
                [(offset, value), (offset, value)],
                [(offset + random.choice((-1, 1)), value)],
                [(offset, random.choice(others))],
            ]
        )


def change_poll_time(cluster: Cluster, random: Random) -> None:
    if found := cluster.history.records.polls:
        random.choice(found).at = random.randint(0, cluster._now)


def change_offset_read(cluster: Cluster, random: Random) -> None:
    asked, answered = sorted(random.sample(range(cluster._now + 2), 2))
    cluster.history.offset_reads.append(
        OffsetRead(GROUP, IN, random.randint(-1, cluster.ends[IN]), asked, answered)
    )


def change_committed(cluster: Cluster, random: Random) -> None:
    cluster.committed[GROUP, IN] = random.randint(-1, cluster.ends[IN])


def change_decision(cluster: Cluster, random: Random) -> None:
    name = random.choice(list(cluster.history.transactions))
    cluster.history.decided(name, is_commit=random.random() < 0.5)


PLANTS: Final[tuple[Callable[[Cluster, Random], None], ...]] = (
    drop_stored,
    repeat_stored,
    swap_stored,
    store_unsent,
    store_sent,
    change_outcome,
    change_commit_time,
    change_send,
    change_reads,
    change_range,
    change_poll,
    change_poll_time,
    change_offset_read,
    change_committed,
    change_decision,
)


def kinds_of(cluster: Cluster) -> set[str]:
    found = judged(
        cluster.history,
        cluster.final,
        cluster.committed,
        incomplete=cluster.incomplete,
        processed=cluster.processed,
    )
    return {str(one.kind) for one in found}


@given(st.randoms(use_true_random=False))
def test_valid_histories_have_no_anomaly(random: Random) -> None:
    assert kinds_of(Cluster(random)) == set()


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(PLANTS), max_size=3))
def test_both_checkers_find_the_same_kinds(
    random: Random, plants: list[Callable[[Cluster, Random], None]]
) -> None:
    cluster = Cluster(random)
    for plant in plants:
        plant(cluster, random)
    kinds_of(cluster)
