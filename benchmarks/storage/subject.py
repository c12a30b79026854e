"""Common parts of these benchmarks: a log as in a node, batches for it, the storage of results.

Each benchmark is run as `python -m benchmarks.storage.<name>` from the top of the checkout.
"""

import json
import os
import platform
from pathlib import Path
from typing import Any

from quorumlog.records import codec
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime.files import RealFiles
from quorumlog.storage import Log, LogConfig
from quorumlog.storage.file_pool import FilePool
from quorumlog.storage.index import IndexCache
from quorumlog.storage.recovery import Recovery, recover

RESULTS = Path(__file__).parent.parent / "results"
FIRST_MS = 1_700_000_000_000
RECORD_OVERHEAD = 9
"""Bytes of a record of 100 bytes besides its value."""


def batch_of(size: int, *, value_bytes: int = 100) -> bytes:
    """Return one uncompressed batch of random values, at most `size` bytes."""
    count = (size - 61) // (value_bytes + RECORD_OVERHEAD)
    return encode_batch(
        [
            Record(
                offset=0,
                timestamp_ms=FIRST_MS + number,
                key=None,
                value=os.urandom(value_bytes),
                headers=(),
            )
            for number in range(count)
        ]
    )


def open_log(folder: str, config: LogConfig | None = None, *, is_clean: bool = True) -> Log:
    """Return the log of a folder; without the folder it is empty."""
    config = config or LogConfig()
    files = RealFiles()
    state = recover(
        files,
        Recovery(
            folder=folder,
            config=config,
            is_clean=is_clean,
            recovery_point=0,
            log_start_offset=0,
            torn_bytes_max=None,
            wall_ms=FIRST_MS,
        ),
    )
    return Log(
        FilePool(files, open_files_max=1000),
        IndexCache(1 << 25),
        name=folder.rpartition("/")[2],
        folder=folder,
        config=config,
        topic_id=None,
        state=state,
    )


def machine() -> dict[str, Any]:
    """Return the description of the machine."""
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "codec": "compiled" if codec.COMPILED else "plain",
    }


def keep(name: str, rows: list[dict[str, Any]], **more: Any) -> None:
    """Store a benchmark's result for the page and print its rows."""
    report = {**machine(), **more, "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"storage_{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    for row in rows:
        print("  ".join(f"{key}={value}" for key, value in row.items() if value is not None))
