"""Logs that are requested together open concurrently, each with its own outcome."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import CorruptionError, Stopping
from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime
from quorumlog.storage import FlushPolicy, LogConfig
from quorumlog.storage.shell import log_opener

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
NAMES = [f"t-{number}" for number in range(10)]


async def fill(kit: Kit, runtime: Runtime, path: str, batch: MakeBatch) -> None:
    async with kit.opened(runtime, path) as directory:
        for name in NAMES:
            log = await directory.open_log(name, FSYNC, topic_id=TOPIC)
            await kit.append(directory, log, batch(1, value=name.encode()))


@pytest.mark.parametrize(("is_clean", "turns"), [(True, 1), (False, len(NAMES))])
def test_after_a_clean_stop_one_lane_turn_opens_all_waiting_logs(
    kit: Kit,
    run: Run,
    batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    is_clean: bool,
    turns: int,
) -> None:
    taken: list[int] = []
    recover_each = log_opener.recover_each

    def counted(files: Any, those: list[Any]) -> list[Any]:
        taken.append(len(those))
        return recover_each(files, those)

    monkeypatch.setattr(log_opener, "recover_each", counted)

    async def main(runtime: Runtime, path: str) -> None:
        await fill(kit, runtime, path, batch)
        if not is_clean:
            runtime.files.remove(f"{path}/.kafka_cleanshutdown")
        taken.clear()
        async with kit.opened(runtime, path) as directory:
            asked = [directory.open_log(name, FSYNC, topic_id=TOPIC) for name in [*NAMES, "t-0"]]
            logs = await asyncio.gather(*asked)
            assert [log.name for log in logs] == [*NAMES, "t-0"]
            assert logs[0] is logs[-1]
            assert await kit.values(directory, logs[7]) == [b"t-7-0"]
        assert len(taken) == turns
        assert sum(taken) == len(NAMES)

    run(main)


def test_corruption_of_one_log_does_not_affect_others(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await fill(kit, runtime, path, batch)
        file = runtime.files.open(f"{path}/t-3/00000000000000000000.log")
        file.write(16, [b"\x07"])  # the magic
        file.close()
        async with kit.opened(runtime, path) as directory:
            asked = [directory.open_log(name, FSYNC, topic_id=TOPIC) for name in NAMES]
            opened = await asyncio.gather(*asked, return_exceptions=True)
            wrong = [
                name
                for name, one in zip(NAMES, opened, strict=True)
                if isinstance(one, CorruptionError)
            ]
            assert wrong == ["t-3"]

    run(main)


def test_cancelled_open_does_not_affect_other_callers(kit: Kit, run: Run, batch: MakeBatch) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        await fill(kit, runtime, path, batch)
        async with kit.opened(runtime, path) as directory:
            first = asyncio.ensure_future(directory.open_log("t-0", FSYNC, topic_id=TOPIC))
            await asyncio.sleep(0)
            first.cancel()
            log = await directory.open_log("t-0", FSYNC, topic_id=TOPIC)
            assert await kit.values(directory, log) == [b"t-0-0"]
        with pytest.raises(Stopping):
            await directory.open_log("t-1", FSYNC, topic_id=TOPIC)

    run(main)
