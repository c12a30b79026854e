"""Changes of a table in processes that kill themselves at one of their file operations.

    python -m tests.unit.spark.killed_tables TEMPLATE FOLDER append|compact|delta|iceberg

For each operation, a process changes a copy of TEMPLATE named FOLDER/work and ends by SIGKILL just
before that operation. The copy is then renamed to FOLDER/NUMBER. The last copy has the complete
change. Prints the number of copies.
"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import deltalake.transaction  # noqa: F401  # before the forks
from tests.unit.spark.table_rows import COLUMNS, OPENED, TARGET_BYTES

from quorumlog.spark.pipelines.parquet_table import open_parquet_table

WATCHED = ("open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir")


def kill_at(operation: int, folder: Path) -> None:
    """Kill this process at its n-th file operation in the writable folder, counted from 1."""
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in WATCHED or not str(arguments[0]).startswith(str(folder)):
            return
        seen += 1
        if seen == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def change(folder: Path, action: str) -> None:
    """Append the staged micro-batch, or compact."""
    with OPENED.get(action, open_parquet_table)(folder / "table") as table:
        if action == "compact":
            table.compact(TARGET_BYTES)
            return
        place = table.begin("query-1", 1)
        if place is not None:
            shutil.copytree(folder / "next", place)
            table.commit("query-1", 1, COLUMNS, 20)


def main() -> None:
    template, target, action = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    folder = target / "work"
    operation = 0
    code = int(signal.SIGKILL)
    while code == int(signal.SIGKILL):
        operation += 1
        shutil.copytree(template, folder)
        child = os.fork()
        if child == 0:
            kill_at(operation, folder)
            change(folder, action)
            os._exit(0)
        code = os.waitpid(child, 0)[1]
        folder.rename(target / str(operation))
    assert code == 0, f"the process ended with status {code}"
    print(operation)


if __name__ == "__main__":
    main()
