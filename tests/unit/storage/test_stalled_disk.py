"""A disk that does not answer blocks only the callers that wait for it."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from quorumlog.ids import TopicId
from quorumlog.runtime import Runtime, real
from quorumlog.storage import FlushPolicy, LogConfig

MakeBatch = Callable[..., bytes]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)
FSYNC = LogConfig(flush_policy=FlushPolicy.FSYNC)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED)


class StallingFiles:
    """The real files, with syncs below a path that block until they are released."""

    def __init__(self, files: Any, stalled: str) -> None:
        self._files = files
        self.stalled = stalled
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, path: str, *, create: bool = False) -> Any:
        return StallingFile(self, self._files.open(path, create=create))

    def sync_folder(self, folder: str) -> None:
        self.wait(folder)
        self._files.sync_folder(folder)

    def wait(self, path: str) -> None:
        if path.startswith(self.stalled):
            self.goes_on.wait()


class StallingFile:
    def __init__(self, files: StallingFiles, file: Any) -> None:
        self._files = files
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._files.wait(self._file.path)
        self._file.sync()


def test_stalled_disk_delays_no_reader_no_other_directory_and_no_cancellation(
    kit: Kit, batch: MakeBatch, tmp_path: Path
) -> None:
    async def main(real_runtime: Runtime) -> None:
        files = StallingFiles(real_runtime.files, f"{tmp_path}/slow")
        runtime = replace(real_runtime, files=files)
        async with (
            kit.opened(runtime, f"{tmp_path}/slow") as slow,
            kit.opened(runtime, f"{tmp_path}/quick") as quick,
        ):
            logs = [await slow.open_log(f"t-{n}", FSYNC, topic_id=TOPIC) for n in range(2)]
            fast = await slow.open_log("f-0", FAST, topic_id=TOPIC)
            other = await quick.open_log("t-0", FSYNC, topic_id=TOPIC)
            for log in (*logs, fast):
                await kit.append(slow, log, batch(2))
            files.goes_on.clear()
            waiting = asyncio.ensure_future(kit.append(slow, logs[0], batch(1)))
            given_up = asyncio.ensure_future(kit.append(slow, logs[1], batch(1)))
            cut = asyncio.ensure_future(slow.truncation.truncate(fast, 1))
            try:
                assert (await kit.append(quick, other, batch(1))).base_offset == 0
                assert len(await kit.values(slow, logs[0])) == 3
                found = await slow.reader.offset_for_time(logs[1], 1_000)
                assert found is not None
                assert found.offset == 0
                given_up.cancel()
                await asyncio.gather(given_up, return_exceptions=True)
                assert given_up.cancelled()
                assert not waiting.done()
                assert not cut.done()
            finally:
                files.goes_on.set()
            assert (await waiting).base_offset == 2
            await cut
            await slow.flush(logs[1])
            assert logs[1].flushed_end_offset == 3, "a cancelled caller only drops the response"

    real.run(main)
