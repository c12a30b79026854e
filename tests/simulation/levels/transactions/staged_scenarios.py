"""Named scenarios of staged commits: each row of the table of failures that concerns the brokers.

A scenario raises AssertionError, Violation or NotReached if a rule is broken; the hunt for planted
bugs plays some of them.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

from tests.kit.node_settings import with_settings

from quorumlog.errors import FencedWrite, NumberTooOld, StageLost
from quorumlog.services import STAGED_COMMITS_COMMIT
from quorumlog.simulation.world import SimWorld
from quorumlog.staged_names import OPEN_TIMEOUT_MS
from quorumlog.testing.checkers import Place

from ...checkers.violation import Violation
from ...faults.call_delays import BYTES
from .calls import Generation
from .faults import MARK
from .scripted import OTHER, OUT, TIMEOUT_MS, ScriptedTransactions
from .staged_client import STAGE_TIMEOUT_MS, AttemptFailed, StagedAttempt, StagedClient
from .staged_history import BatchKey, StagedBatch, StagedHistory

T = TypeVar("T")

NAME: Final = "spark/query/"
FIRST: Final[BatchKey] = (NAME, 0)
SECOND: Final[BatchKey] = (NAME, 1)
GONE: Final = "gone"  # a topic that is deleted
LATE_MS: Final = 5_000  # of a delayed call: longer than the steps beside it
HOLD_MS: Final = 1_000_000  # a call never arrives
COMMIT: Final = STAGED_COMMITS_COMMIT.path
COMMIT_MS: Final = 60_000
STABLE_MS: Final = 30_000
RETENTION_MS: Final = 10_000  # several checks


class StagedScene:
    """A scripted cluster with drivers and tasks."""

    def __init__(self, world: SimWorld, **options: int) -> None:
        self.stage = ScriptedTransactions(world, Generation.NEW, **options)
        for node in self.stage.stage.cluster.nodes:
            node.config = with_settings(node.config, retention_check_interval_ms=1_000)
        self.history = StagedHistory(self.stage.observed.history)
        self._clients = 0
        self._attempts = 0

    def do(self, program: Coroutine[Any, Any, T]) -> T:
        """Run a program on the client machine and return its result."""
        return self.stage.do(program)

    def new_client(self) -> StagedClient:
        """Return the connections of a new process."""
        self._clients += 1
        return StagedClient(
            runtime=self.stage.runtime,
            name=f"driver{self._clients}",
            bootstrap=self.stage.stage.cluster.bootstrap.split(","),
            kafka_bootstrap=self.stage.bootstrap,
            observed=self.stage.observed,
            history=self.history,
            timeout_ms=TIMEOUT_MS,
            topics=[OUT[0]],
        )

    def new_driver(self, key: BatchKey = FIRST) -> "ScriptedDriver":
        """Return a driver that has planned a write."""
        client = self.new_client()
        return ScriptedDriver(self, client, key, self.do(client.open_write()))

    def next_attempt(self) -> int:
        """Return a unique number of a task attempt."""
        self._attempts += 1
        return self._attempts

    def fail_over(self) -> None:
        """Take the coordinator down until another one leads, and end the delays."""
        coordinator = self.stage.coordinator(NAME)
        self.stage.stage.take_down(coordinator)
        self.stage.delays_ms.clear()
        self.stage.stage.until(
            lambda: self.stage.coordinator(NAME) is not coordinator, "another coordinator"
        )
        self.stage.stage.bring_up(coordinator)

    def wait_stable(self) -> None:
        """Wait until no undecided attempt has records in a partition."""
        reader = self.stage.reader()

        def is_stable() -> bool:
            left = self.do(reader.undecided(self.stage.runtime, [OUT, OTHER]))
            return not any("stable to" in one for one in left)

        why = "the last stable offsets are the high watermarks"
        self.stage.stage.until(is_stable, why, virtual_ms=STABLE_MS)

    def end(self) -> None:
        """End all faults; every attempt must be decided, and every batch whole."""
        found = self.stage.end()
        anomalies = self.stage.anomalies(found)
        if anomalies:
            raise Violation(min(anomalies), f"anomalies: {sorted(anomalies)}")
        self.history.check(found.committed)
        self.visible = found.committed

    def expect_visible(self, *values: bytes) -> None:
        """Compare the committed records after the end with these, in any order."""
        found = sorted(value for records in self.visible.values() for _, value in records)
        if found != sorted(values):
            raise Violation("WrongRecords", f"{found} in place of {sorted(values)}")


class ScriptedDriver:
    """One write of a batch; its tasks run in the same process."""

    def __init__(
        self, scene: StagedScene, client: StagedClient, key: BatchKey, write_id: int
    ) -> None:
        self.key = key
        self.write_id = write_id
        self.client = client
        self._scene = scene

    def begin(self, task: int = 0) -> StagedAttempt:
        """Begin a task attempt."""
        found = self.try_to_begin(task)
        assert isinstance(found, StagedAttempt), f"{found} is committed"
        return found

    def try_to_begin(self, task: int = 0) -> StagedAttempt | StagedBatch:
        """Begin a task attempt, or return the committed batch."""
        attempt = self._scene.next_attempt()
        return self._scene.do(self.client.begin(self.key, self.write_id, task, attempt))

    def opened(self, values: Mapping[Place, bytes], task: int = 0) -> StagedAttempt:
        """A task attempt with one record in each partition."""
        attempt = self.begin(task)
        for place, value in values.items():
            self._scene.do(attempt.write(place, [value]))
        return attempt

    def sealed(self, values: Mapping[Place, bytes], task: int = 0) -> StagedAttempt:
        """A sealed task attempt with one record in each partition."""
        attempt = self.opened(values, task)
        self._scene.do(attempt.seal())
        return attempt

    def commit(self, *winners: StagedAttempt) -> StagedBatch:
        """Commit the attempts of the tasks."""
        return self._scene.do(self.committing(*winners))

    def committing(self, *winners: StagedAttempt) -> Coroutine[Any, Any, StagedBatch]:
        """Return the program that commits."""
        named = {attempt.task: attempt for attempt in winners}
        return self.client.commit(self.key, self.write_id, named, wait_ms=COMMIT_MS)

    def abort(self) -> StagedBatch | None:
        """Abort the write."""
        return self._scene.do(self.client.abort(self.key, self.write_id))


@contextmanager
def scene_of(**options: int) -> Iterator[StagedScene]:
    """Yield a started scene; at its end every attempt is decided and every batch whole."""
    with SimWorld(1) as world:
        scene = StagedScene(world, **options)
        scene.stage.start()
        yield scene


def refused(kind: type[Exception] | tuple[type[Exception], ...], step: Callable[[], Any]) -> None:
    """Run a step that must raise such an error."""
    try:
        found = step()
    except kind:
        return
    raise Violation("NotRefused", f"{found} in place of {kind}")


def expect_batch(batch: StagedBatch | StagedAttempt | None, driver: ScriptedDriver) -> None:
    """Raise Violation unless a broker returned the batch of this driver as committed."""
    if not isinstance(batch, StagedBatch) or batch.write_id != driver.write_id:
        raise Violation("WrongWrite", f"{batch} in place of a commit of {driver.write_id}")


# --- tasks ---------------------------------------------------------------------------------------


def task_retry() -> None:
    """A task fails after some records, and is run again."""
    with scene_of() as scene:
        driver = scene.new_driver()
        failed = driver.opened({OUT: b"failed", OTHER: b"failed too"})
        scene.do(failed.abort())
        again = driver.sealed({OUT: b"a", OTHER: b"b"})
        expect_batch(driver.commit(again), driver)
        scene.end()
        scene.expect_visible(b"a", b"b")


def speculation() -> None:
    """Two attempts of a task are sealed, a third one still runs; the commit names one."""
    with scene_of() as scene:
        driver = scene.new_driver()
        driver.sealed({OUT: b"slow", OTHER: b"slow too"})
        fast = driver.sealed({OUT: b"fast"})
        driver.opened({OTHER: b"running"})
        expect_batch(driver.commit(fast), driver)
        scene.end()
        scene.expect_visible(b"fast")


def stage_retry() -> None:
    """All tasks of a stage are run again; the commit names the later ones."""
    with scene_of() as scene:
        driver = scene.new_driver()
        for task in range(2):
            driver.sealed({OUT: b"old%d" % task}, task)
        again = [driver.sealed({OUT: b"new%d" % task}, task) for task in range(2)]
        expect_batch(driver.commit(*again), driver)
        scene.end()
        scene.expect_visible(b"new0", b"new1")


def zombie_after_the_decision() -> None:
    """A task that runs on after the decision: it can write nothing, where it had written and
    elsewhere, and its seal is refused."""
    with scene_of() as scene:
        driver = scene.new_driver()
        zombie, winner = driver.opened({OUT: b"zombie"}), driver.sealed({OUT: b"a"})
        expect_batch(driver.commit(winner), driver)
        scene.stage.wait_complete()
        for place in (OUT, OTHER):
            late = zombie.write(place, [b"late in %d" % place[1]])
            refused(AttemptFailed, partial(scene.do, late))
        refused(StageLost, lambda: scene.do(zombie.seal()))
        refused(StageLost, lambda: scene.do(zombie.keep_alive()))
        # Its producer id is used again.
        following = scene.new_driver(SECOND)
        expect_batch(following.commit(following.sealed({OUT: b"b", OTHER: b"c"})), following)
        refused(AttemptFailed, lambda: scene.do(zombie.write(OUT, [b"later"])))
        scene.end()
        scene.expect_visible(b"a", b"b", b"c")


def zombie_during_the_markers() -> None:
    """A task writes between the decision and the marker of its attempt."""
    with scene_of() as scene:
        driver = scene.new_driver()
        zombie, winner = driver.opened({OUT: b"zombie"}), driver.sealed({OTHER: b"a"})
        scene.stage.delays_ms[MARK, False] = 2_000
        committing = scene.stage.begin(driver.committing(winner))
        scene.stage.stage.run(500)
        refused(AttemptFailed, lambda: scene.do(zombie.write(OTHER, [b"elsewhere"])))
        scene.stage.stage.until(committing.done, "the commit is answered")
        expect_batch(committing.result(), driver)
        scene.end()
        scene.expect_visible(b"a")


def ids_during_the_markers() -> None:
    """The next batch begins before the markers of the last one are written: with other ids."""
    with scene_of() as scene:
        first = scene.new_driver()
        winner = first.sealed({OUT: b"a", OTHER: b"b"})
        scene.stage.delays_ms[MARK, False] = LATE_MS
        committing = scene.stage.begin(first.committing(winner))
        scene.stage.stage.run(500)
        second = scene.new_driver(SECOND)
        attempt = second.sealed({OUT: b"c", OTHER: b"d"})
        if attempt.producer.producer_id == winner.producer.producer_id:
            raise Violation("IdReused", f"{attempt.producer} before the markers of its id")
        expect_batch(second.commit(attempt), second)
        scene.stage.stage.until(committing.done, "the first commit is answered")
        expect_batch(committing.result(), first)
        scene.end()
        scene.expect_visible(b"a", b"b", b"c", b"d")


def id_after_the_first_marker() -> None:
    """One partition has its marker and the other one has not, while the next batch begins."""
    with scene_of(copies=2, coordinator_copies=3) as scene:
        driver = scene.new_driver()
        winner = driver.sealed({OUT: b"a", OTHER: b"b"})
        follower = _follower_of(scene, OTHER)
        scene.stage.stage.cut(scene.stage.stage.leader(OTHER), follower)
        committing = scene.stage.begin(driver.committing(winner))
        scene.stage.stage.run(500)
        second = scene.new_driver(SECOND)
        attempt = second.begin()
        if attempt.producer.producer_id == winner.producer.producer_id:
            raise Violation("IdReused", f"{attempt.producer} before the markers of its id")
        scene.stage.stage.mend()
        scene.do(attempt.write(OTHER, [b"c"]))
        scene.do(attempt.seal())
        expect_batch(second.commit(attempt), second)
        scene.stage.stage.until(committing.done, "the first commit is answered")
        scene.end()
        scene.expect_visible(b"a", b"b", b"c")


def commit_before_seal() -> None:
    """A commit names an attempt that still writes: it fails whole."""
    with scene_of() as scene:
        driver = scene.new_driver()
        sealed, opened = driver.sealed({OUT: b"a"}, 0), driver.opened({OTHER: b"b"}, 1)
        refused(StageLost, lambda: driver.commit(sealed, opened))
        scene.do(opened.write(OTHER, [b"c"]))
        scene.do(opened.seal())
        expect_batch(driver.commit(sealed, opened), driver)
        scene.end()
        scene.expect_visible(b"a", b"b", b"c")


# --- drivers -------------------------------------------------------------------------------------


def driver_dies_before_the_commit() -> None:
    """The restarted driver plans the batch again; its first Begin aborts the old stage."""
    with scene_of() as scene:
        old = scene.new_driver()
        old.sealed({OUT: b"old"}, 0)
        old.opened({OUT: b"old too", OTHER: b"old as well"}, 1)
        new = scene.new_driver()
        attempt = new.begin()
        scene.wait_stable()  # the old stage holds no reader any longer
        scene.do(attempt.write(OUT, [b"a"]))
        scene.do(attempt.seal())
        expect_batch(new.commit(attempt), new)
        scene.end()
        scene.expect_visible(b"a")


def driver_never_restarts() -> None:
    """A stage without a driver expires, and holds no reader any longer."""
    with scene_of() as scene:
        driver = scene.new_driver()
        driver.opened({OTHER: b"opened"}, 0)
        driver.sealed({OUT: b"sealed"}, 1)
        scene.stage.stage.run(max(OPEN_TIMEOUT_MS, STAGE_TIMEOUT_MS) + 1_000)
        scene.end()
        scene.expect_visible()


def driver_dies_after_the_commit() -> None:
    """The restarted driver finds its batch committed, for every task."""
    with scene_of() as scene:
        old = scene.new_driver()
        batch = old.commit(old.sealed({OUT: b"a", OTHER: b"b"}))
        new = scene.new_driver()
        for task in range(2):
            found = new.try_to_begin(task)
            expect_batch(found, old)
            assert isinstance(found, StagedBatch)
            assert found.records == batch.records == 2, (found, batch)
        scene.end()
        scene.expect_visible(b"a", b"b")


def late_commit_before_the_new_begin() -> None:
    """The commit of a dead driver arrives before its successor begins: it wins."""
    with scene_of() as scene:
        old = scene.new_driver()
        winner = old.sealed({OUT: b"a"})
        new = scene.new_driver()
        expect_batch(old.commit(winner), old)
        expect_batch(new.try_to_begin(), old)
        scene.end()
        scene.expect_visible(b"a")


def late_commit_after_the_new_begin() -> None:
    """The commit of a dead driver arrives after its successor has begun: it is fenced."""
    with scene_of() as scene:
        old = scene.new_driver()
        winner = old.sealed({OUT: b"old"})
        new = scene.new_driver()
        attempt = new.opened({OUT: b"new"})
        refused(FencedWrite, lambda: old.commit(winner))
        scene.do(attempt.seal())
        expect_batch(new.commit(attempt), new)
        expect_batch(old.commit(winner), new)  # it stops, with the reason
        scene.end()
        scene.expect_visible(b"new")


def two_drivers_on_one_checkpoint() -> None:
    """The later plan fences the earlier one; each number is decided once."""
    with scene_of() as scene:
        one, other = scene.new_driver(), scene.new_driver()
        first = one.sealed({OUT: b"one"})
        second = other.sealed({OUT: b"other"})
        refused(FencedWrite, lambda: one.try_to_begin(1))
        refused(FencedWrite, lambda: one.commit(first))
        expect_batch(other.commit(second), other)
        # A driver that is a batch behind is refused; nothing is skipped in silence.
        third = scene.new_driver(SECOND)
        expect_batch(third.commit(third.sealed({OTHER: b"third"})), third)
        refused(NumberTooOld, lambda: one.try_to_begin())
        refused(NumberTooOld, lambda: one.commit(first))
        refused(NumberTooOld, lambda: scene.new_driver().try_to_begin())
        scene.end()
        scene.expect_visible(b"other", b"third")


def abort_after_a_lost_answer() -> None:
    """The answer to a commit is lost, and the driver aborts: nothing happens."""
    with scene_of() as scene:
        driver = scene.new_driver()
        winner = driver.sealed({OUT: b"a", OTHER: b"b"})
        scene.stage.delays_ms[MARK, False] = LATE_MS
        scene.stage.delays_ms[COMMIT, True] = LATE_MS
        committing = scene.stage.begin(driver.committing(winner))
        scene.stage.stage.run(500)
        committing.cancel()
        for _ in range(2):
            expect_batch(driver.abort(), driver)
            expect_batch(
                scene.do(driver.client.abort(driver.key, driver.write_id, winner.producer)), driver
            )
        scene.end()
        scene.expect_visible(b"a", b"b")


def abort_decides_no_number() -> None:
    """A batch is aborted, and run again."""
    with scene_of() as scene:
        driver = scene.new_driver()
        winner = driver.sealed({OUT: b"old"})
        assert driver.abort() is None
        refused(StageLost, lambda: driver.commit(winner))
        refused(FencedWrite, lambda: driver.try_to_begin(1))
        again = scene.new_driver()
        expect_batch(again.commit(again.sealed({OUT: b"a"})), again)
        scene.end()
        scene.expect_visible(b"a")


# --- coordinators --------------------------------------------------------------------------------


def _coordinator_fails(step: int) -> None:
    """The coordinator fails after a step of a batch; the others continue."""
    with scene_of() as scene:
        driver = scene.new_driver()
        loser, winner = driver.begin(), driver.begin()
        programs: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (
            partial(loser.write, OUT, [b"loser"]),
            partial(winner.write, OUT, [b"a"]),
            partial(winner.write, OTHER, [b"b"]),
            winner.seal,
            partial(driver.committing, winner),
        )
        for number, program in enumerate(programs):
            if number == step:
                scene.fail_over()
            scene.do(program())
        if step == len(programs):
            scene.fail_over()
        expect_batch(driver.commit(winner), driver)
        expect_batch(scene.new_driver().try_to_begin(), driver)
        scene.end()
        scene.expect_visible(b"a", b"b")


def coordinator_fails_after_begin() -> None:
    """Between Begin and the first record."""
    _coordinator_fails(0)


def coordinator_fails_after_a_record() -> None:
    """Between two records of different partitions."""
    _coordinator_fails(2)


def coordinator_fails_before_seal() -> None:
    """Between the last record and Seal."""
    _coordinator_fails(3)


def coordinator_fails_before_commit() -> None:
    """Between Seal and Commit."""
    _coordinator_fails(4)


def coordinator_fails_after_commit() -> None:
    """After the answer."""
    _coordinator_fails(5)


def coordinator_fails_before_the_markers() -> None:
    """Between the decision and its markers, of winners and of losers."""
    with scene_of() as scene:
        driver = scene.new_driver()
        driver.opened({OTHER: b"loser"})
        winner = driver.sealed({OUT: b"a", OTHER: b"b"})
        scene.stage.delays_ms[MARK, False] = HOLD_MS
        committing = scene.stage.begin(driver.committing(winner))
        scene.stage.stage.run(500)
        scene.fail_over()
        scene.stage.stage.until(committing.done, "the commit is answered")
        expect_batch(committing.result(), driver)
        scene.end()
        scene.expect_visible(b"a", b"b")


def coordinator_fails_before_the_decision() -> None:
    """The record of the decision reaches no follower; the successor of the driver decides."""
    with scene_of() as scene:
        old = scene.new_driver()
        winner = old.sealed({OUT: b"old"})
        coordinator = scene.stage.coordinator(NAME)
        scene.stage.delayed, scene.stage.delays_ms[BYTES, True] = coordinator, HOLD_MS
        committing = scene.stage.begin(old.committing(winner))
        scene.stage.stage.run(500)
        committing.cancel()
        scene.fail_over()
        new = scene.new_driver()
        found = new.try_to_begin()
        if isinstance(found, StagedAttempt):
            scene.do(found.write(OUT, [b"new"]))
            scene.do(found.seal())
            expect_batch(new.commit(found), new)
        else:
            expect_batch(found, old)
        scene.end()
        scene.expect_visible(b"new" if isinstance(found, StagedAttempt) else b"old")


def coordinator_fails_after_abort() -> None:
    """Between an abort and its markers: the batch stays undecided."""
    with scene_of() as scene:
        driver = scene.new_driver()
        winner = driver.sealed({OUT: b"old"})
        scene.stage.delays_ms[MARK, False] = HOLD_MS
        assert driver.abort() is None
        scene.fail_over()
        refused(StageLost, lambda: driver.commit(winner))
        scene.end()
        scene.expect_visible()


# --- expiry --------------------------------------------------------------------------------------


def stage_expires_under_a_slow_job() -> None:
    """A commit after the expiry of the stage fails whole; the batch is run again."""
    with scene_of() as scene:
        driver = scene.new_driver()
        winners = [driver.sealed({OUT: b"slow%d" % task}, task) for task in range(2)]
        scene.stage.stage.run(STAGE_TIMEOUT_MS + 1_000)
        refused(StageLost, lambda: driver.commit(*winners))
        scene.fail_over()
        refused(StageLost, lambda: driver.commit(*winners))
        again = scene.new_driver()
        expect_batch(again.commit(again.sealed({OUT: b"a"})), again)
        scene.end()
        scene.expect_visible(b"a")


def attempt_expires_and_its_coordinator_fails() -> None:
    """An open attempt expires, and its coordinator fails before all markers are written."""
    with scene_of() as scene:
        driver = scene.new_driver()
        silent = driver.opened({OUT: b"silent", OTHER: b"silent too"}, 0)
        scene.stage.stage.run(OPEN_TIMEOUT_MS - 20_000)
        scene.stage.delays_ms[MARK, False] = HOLD_MS
        scene.stage.stage.run(21_000)
        for node in scene.stage.stage.cluster.nodes:
            if node is not scene.stage.coordinator(NAME):
                node.sim.machine.wall_ms -= OPEN_TIMEOUT_MS  # not expired there
        scene.fail_over()
        refused(StageLost, lambda: scene.do(silent.seal()))
        scene.end()
        scene.expect_visible()


def slow_tasks_keep_their_stage() -> None:
    """Keep-alives of a slow task keep the sealed ones beside it."""
    with scene_of() as scene:
        driver = scene.new_driver()
        fast, slow = driver.sealed({OUT: b"a"}, 0), driver.opened({OTHER: b"b"}, 1)
        for _ in range(4):
            scene.stage.stage.run(STAGE_TIMEOUT_MS // 2)
            scene.do(slow.keep_alive())
        scene.do(slow.seal())
        expect_batch(driver.commit(fast, slow), driver)
        scene.end()
        scene.expect_visible(b"a", b"b")


# --- partitions and topics -----------------------------------------------------------------------


def partition_without_leader_at_marker_time() -> None:
    """The decision stands; the part of the partition appears when it has a leader."""
    with scene_of(copies=1, coordinator_copies=3) as scene:
        driver = scene.new_driver()
        winner = driver.sealed({OUT: b"a", OTHER: b"b"})
        stage, missing = scene.stage.stage, scene.stage.stage.leader(OTHER)
        assert missing is not stage.leader(OUT), "the partitions have one leader"
        stage.take_down(missing)
        stage.until(lambda: stage.partition(OTHER).leader < 0, "the partition has no leader")
        batch = driver.commit(winner)
        expect_batch(batch, driver)
        assert not batch.is_visible, batch
        second = scene.new_driver(SECOND)  # later batches go on
        batch = second.commit(second.sealed({OUT: b"c"}))
        expect_batch(batch, second)
        assert not batch.is_visible, batch
        stage.bring_up(missing)
        scene.end()
        scene.expect_visible(b"a", b"b", b"c")


def _follower_of(scene: StagedScene, place: Place) -> Any:
    (follower,) = scene.stage.stage.followers(place)
    return follower


def _create(scene: StagedScene, name: str = GONE, **configs: str) -> Place:
    """Create a topic with one partition."""

    async def create() -> None:
        admin = scene.stage.stage.client().admin
        await admin.create_topic(name, partitions=1, replication=3, configs=configs)

    scene.do(create())
    place = (name, 0)
    scene.stage.stage.until(lambda: scene.stage.stage.state(place) is not None, "the topic exists")
    return place


def _delete(scene: StagedScene) -> None:
    async def delete() -> None:
        await scene.stage.stage.client().admin.delete_topic(GONE)

    scene.do(delete())
    scene.stage.stage.until(lambda: scene.stage.stage.state((GONE, 0)) is None, "it is deleted")


def retention_under_a_stage() -> None:
    """A topic outgrows its retention while a stage is undecided: its records stay."""
    with scene_of() as scene:
        short = _create(scene, "short", **{"segment.bytes": "1024", "retention.bytes": "1024"})
        driver = scene.new_driver()
        driver.client.topics = [OUT[0], short[0]]
        winner = driver.begin()
        scene.do(driver.client.look())
        values = [b"%02d" % number + b"." * 500 for number in range(20)]
        for value in values:
            scene.do(winner.write(short, [value]))
        scene.do(winner.seal())
        scene.stage.stage.run(RETENTION_MS)
        found = scene.do(scene.stage.reader().find_all(scene.stage.runtime, [short], {}))
        kept = [value for batch in found.logs[short] for _, _, value in batch.records]
        if kept != values:
            raise Violation("Lost", f"{len(kept)} of {len(values)} records are left")
        expect_batch(driver.commit(winner), driver)
        scene.stage.end()


def topic_deleted_after_the_decision() -> None:
    """Its markers count as written: the batch is complete, and its id is used again."""
    with scene_of() as scene:
        gone, driver = _create(scene), scene.new_driver()
        winner = driver.begin()
        driver.client.topics = [OUT[0], GONE]
        scene.do(driver.client.look())
        for place in (OUT, gone):
            scene.do(winner.write(place, [b"in " + place[0].encode()]))
        scene.do(winner.seal())
        scene.stage.delays_ms[MARK, False] = HOLD_MS
        committing = scene.stage.begin(driver.committing(winner))
        scene.stage.stage.run(500)
        _delete(scene)
        scene.stage.delays_ms.clear()
        scene.fail_over()
        scene.stage.stage.until(committing.done, "the commit is answered")
        expect_batch(committing.result(), driver)
        found = scene.stage.end()
        values = [value for _, value in found.committed[OUT]]
        assert values == [b"in t"], values


def _topic_deleted_before_commit(*, is_recreated: bool) -> None:
    with scene_of() as scene:
        gone, driver = _create(scene), scene.new_driver()
        driver.client.topics = [OUT[0], GONE]
        winner = driver.begin()
        scene.do(driver.client.look())
        for place in (OUT, gone):
            scene.do(winner.write(place, [b"in " + place[0].encode()]))
        scene.do(winner.seal())
        _delete(scene)
        if is_recreated:
            _create(scene)
        scene.stage.stage.run(1_000)  # the coordinator applies the metadata
        refused(StageLost, lambda: driver.commit(winner))
        again = scene.new_driver()
        expect_batch(again.commit(again.sealed({OUT: b"a"})), again)
        scene.end()
        scene.expect_visible(b"a")


def topic_deleted_before_commit() -> None:
    """Partitions are kept by topic id: the commit fails whole."""
    _topic_deleted_before_commit(is_recreated=False)


def topic_recreated_before_commit() -> None:
    """The same with another topic of the name."""
    _topic_deleted_before_commit(is_recreated=True)


STAGED_SCENARIOS: Final[Mapping[str, Callable[[], None]]] = {
    one.__name__: one
    for one in (
        task_retry,
        speculation,
        stage_retry,
        zombie_after_the_decision,
        zombie_during_the_markers,
        ids_during_the_markers,
        id_after_the_first_marker,
        commit_before_seal,
        driver_dies_before_the_commit,
        driver_never_restarts,
        driver_dies_after_the_commit,
        late_commit_before_the_new_begin,
        late_commit_after_the_new_begin,
        two_drivers_on_one_checkpoint,
        abort_after_a_lost_answer,
        abort_decides_no_number,
        coordinator_fails_after_begin,
        coordinator_fails_after_a_record,
        coordinator_fails_before_seal,
        coordinator_fails_before_commit,
        coordinator_fails_after_commit,
        coordinator_fails_before_the_markers,
        coordinator_fails_before_the_decision,
        coordinator_fails_after_abort,
        stage_expires_under_a_slow_job,
        attempt_expires_and_its_coordinator_fails,
        slow_tasks_keep_their_stage,
        partition_without_leader_at_marker_time,
        retention_under_a_stage,
        topic_deleted_after_the_decision,
        topic_deleted_before_commit,
        topic_recreated_before_commit,
    )
}
