"""A repaired directory passes the check and keeps all valid records."""

from collections.abc import Callable

import pytest

from quorumlog import simulation
from quorumlog.errors import DirectoryInUse, InvalidRequest
from quorumlog.records.batch import HEADER_SIZE
from quorumlog.records.codec import decode_all
from quorumlog.runtime import Runtime
from quorumlog.storage import FlushPolicy, LogConfig
from quorumlog.storage.inspect.directory_check import check
from quorumlog.storage.inspect.repair import repair
from quorumlog.storage.shell import DataDirectory

from .conftest import DATA, TOPIC, Contents, Script, Tree

Plant = Callable[[Contents], Tree]

LAST = f"{DATA}/t-0/00000000000000000012.log"
MIDDLE = f"{DATA}/t-0/00000000000000000007.log"
POINTS = f"{DATA}/recovery-point-offset-checkpoint"


def values(tree: Tree) -> list[bytes | None]:
    """Return all values of t-0."""
    logs = [path for path in tree.all_paths(f"{DATA}/t-0") if path.endswith(".log")]
    return [record.value for path in logs for record in decode_all(tree.read(path))]


DAMAGES = {
    "an index": {"t-0/00000000000000000007.index": b"12345678"},
    "a time index": {"t-0/00000000000000000007.timeindex": b""},
    "the leader epochs": {"t-0/leader-epoch-checkpoint": b"0\n1\n3 0\n"},
    "a snapshot": {"t-0/00000000000000000012.snapshot": b"torn"},
    "a transaction index": {"t-0/00000000000000000007.txnindex": bytes(34)},
    "the recovery points": {"recovery-point-offset-checkpoint": b"0\n1\nt 0 4\n"},
    "the log starts": {"log-start-offset-checkpoint": b"nonsense"},
    "the clean marker": {".kafka_cleanshutdown": b"?"},
    "leftovers": {
        "t-0/00000000000000000007.log.cleaned": b"x",
        "t-0/00000000000000000000.log.deleted": b"x",
        "meta.properties.tmp": b"",
        "old-0.0123456789abcdef-delete/00000000000000000000.log": b"x",
    },
}


@pytest.mark.parametrize("what", DAMAGES)
def test_repair_rebuilds_files_that_derive_from_the_batches(
    plant: Plant, closed_contents: Contents, what: str
) -> None:
    damaged = {f"{DATA}/{name}": content for name, content in DAMAGES[what].items()}
    tree = plant(closed_contents | damaged)
    assert any(check(tree.files, DATA).all_findings())
    report = repair(tree.files, DATA)
    assert report.failed is None
    assert report.done
    assert report.after is not None
    assert not list(report.after.all_findings())
    for path, content in closed_contents.items():
        if path.endswith(".log"):
            assert tree.read(path) == content


def test_repair_of_an_intact_directory_changes_nothing(
    plant: Plant, closed_contents: Contents
) -> None:
    tree = plant(closed_contents)
    report = repair(tree.files, DATA)
    assert report.is_ok
    assert report.done == []
    assert tree.all_contents() == closed_contents


def test_repair_truncates_a_torn_tail_like_recovery(
    plant: Plant, killed_contents: Contents
) -> None:
    torn = killed_contents | {
        LAST: killed_contents[LAST][:-5],
        POINTS: b"0\n2\nc 0 31\nt 0 12\n",
    }
    tree = plant(torn)
    before = values(plant(killed_contents))
    tree = plant(torn)
    report = repair(tree.files, DATA)
    assert report.is_ok, report.as_dict()
    assert any("offset 13" in done for done in report.done)
    assert values(tree) == before[:-2]
    assert tree.read(POINTS) == b"0\n2\nc 0 31\nt 0 13\n"


def test_repair_truncates_corruption_only_on_request(
    plant: Plant, killed_contents: Contents
) -> None:
    content = killed_contents[MIDDLE]
    damaged = content[: HEADER_SIZE + 1] + b"?" + content[HEADER_SIZE + 2 :]
    tree = plant(killed_contents | {MIDDLE: damaged})
    before = tree.all_contents()
    report = repair(tree.files, DATA)
    assert not report.is_ok
    assert report.refused
    assert tree.all_contents() == before


def test_truncation_of_corruption_keeps_a_copy_and_the_records_before_it(
    plant: Plant, killed_contents: Contents
) -> None:
    content = killed_contents[MIDDLE]
    damaged = content[: HEADER_SIZE + 1] + b"?" + content[HEADER_SIZE + 2 :]
    tree = plant(killed_contents | {MIDDLE: damaged})
    report = repair(tree.files, DATA, cut_to="/aside")
    assert report.is_ok, report.as_dict()
    assert any("truncate offsets [7, 15)" in done for done in report.done)
    assert tree.read("/aside/t-0/00000000000000000007.log.from-0") == damaged
    assert tree.read("/aside/t-0/00000000000000000012.log") == killed_contents[LAST]
    assert values(tree)[:3] == [b"a", b"b", b"c"]
    assert [log.log_end_offset for log in check(tree.files, DATA).logs] == [31, 7]
    with pytest.raises(InvalidRequest, match="is inside /data"):
        repair(tree.files, DATA, cut_to="/data/aside")


def test_log_that_is_too_short_continues_at_its_end_on_request(
    plant: Plant, killed_contents: Contents
) -> None:
    tree = plant(killed_contents | {POINTS: b"0\n2\nc 0 31\nt 0 20\n"})
    report = repair(tree.files, DATA, cut_to="/aside")
    assert report.is_ok, report.as_dict()
    assert any("offsets [15, 20) are lost" in done for done in report.done)


def test_repair_rejects_a_directory_in_use(plant: Plant, killed_contents: Contents) -> None:
    tree = plant(killed_contents)
    lock = tree.files.lock(f"{DATA}/.lock")
    with pytest.raises(DirectoryInUse, match="stop it before a repair"):
        repair(tree.files, DATA)
    lock.release()
    with pytest.raises(InvalidRequest, match="is not a data directory"):
        repair(tree.files, f"{DATA}/t-0")
    repair(tree.files, DATA)


def test_a_step_that_fails_is_named_with_those_behind_it(
    plant: Plant, closed_contents: Contents
) -> None:
    tree = plant(
        closed_contents
        | {
            f"{DATA}/t-0/00000000000000000007.index": b"12345678",
            f"{DATA}/t-0/leader-epoch-checkpoint": b"0\n1\n3 0\n",
        }
    )
    # A non-empty folder has the name of the file that the step removes.
    tree.files.make_folder(f"{DATA}/t-0/00000000000000000007.index.tmp/in-the-way")
    report = repair(tree.files, DATA)
    assert report.failed is not None
    assert report.failed[0].startswith("t-0: complete unfinished work")
    assert report.after is None
    assert any("leader-epoch-checkpoint" in step for step in report.not_begun)


def test_node_continues_after_truncated_corruption(killed_contents: Contents) -> None:
    """Appends continue at that offset and epoch, with the producers as of that offset."""

    async def story(runtime: Runtime) -> None:
        content = killed_contents[MIDDLE]
        at = HEADER_SIZE + 1
        damaged = content[:at] + b"?" + content[at + 1 :]
        tree = Tree(runtime.files, killed_contents | {MIDDLE: damaged})
        runtime.files.lock(f"{DATA}/.lock").release()
        assert repair(runtime.files, DATA, cut_to="/aside").is_ok
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA)
            config = LogConfig(flush_policy=FlushPolicy.FSYNC)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            assert (log.log_start_offset, log.log_end_offset) == (0, 7)
            entry = log.producers.states.entry(5)
            assert entry is not None
            assert entry.next_sequence == 3  # d, e and f; the batches behind the cut are forgotten
            transaction = log.producers.states.entry(9)
            assert transaction is not None
            assert transaction.transaction_start == 6
            script = Script(directory, log, epoch=4, sequences={5: 3})
            await script.append("new", producer=5)
            assert log.log_end_offset == 8
            await directory.close()
            scope.cancel()
        assert [value for value in values(tree) if value == b"new"]
        assert check(runtime.files, DATA).is_ok

    simulation.run(story)
