"""`quorumlog log dump`: what is in a segment file, batch by batch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import CorruptionError, InvalidRequest
from .options import Output, OutputOption
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..records.batch import BatchHeader
    from ..runtime import File

app = typer.Typer(help="Files of a data directory.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = (
    "position",
    "base_offset",
    "last_offset",
    "records",
    "bytes",
    "codec",
    "leader_epoch",
    "max_timestamp",
)


@app.callback()
def log() -> None:
    """Files of a data directory."""


@app.command("dump")
def dump(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A segment file, *.log.")],
    output: OutputOption = Output.HUMAN,
) -> None:
    """Print the record batches of a segment file; nothing is changed.

    Stops with exit code 1 at the first batch that is torn or whose CRC is wrong.
    """
    rows: list[dict[str, Any]] = []
    problem: CorruptionError | None = None
    try:
        for row in read_batches(file):
            if output is Output.JSON:
                print_json(row)
            else:
                rows.append(row)
    except CorruptionError as error:
        problem = error
    if output is Output.HUMAN:
        table = [tuple(row[name] for name in COLUMNS) for row in rows]
        print_table([name.replace("_", " ") for name in COLUMNS], table, empty="It has no batches.")
    if problem is not None:
        problem.message = f"{file} at byte {problem.position}: {problem.message}"
        raise problem


def read_batches(path: str) -> Iterator[dict[str, Any]]:
    """Yield what each batch's header says, its CRC checked; raises CorruptionError, and
    InvalidRequest when the file cannot be read."""
    from ..records.batch import HEADER_SIZE, check_crc, parse_header
    from ..runtime.files import RealFiles

    try:
        file = RealFiles().open_readonly(path)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}") from None
    try:
        position, size = 0, file.size()
        while position < size:
            header_bytes = file.read(position, HEADER_SIZE)
            try:
                header = parse_header(header_bytes)
                check_crc(_whole(file, position, header), 0, header)
            except CorruptionError as error:
                error.position = position
                raise
            yield _row(position, header)
            position += header.size
    finally:
        file.close()


def _whole(file: "File", position: int, header: "BatchHeader") -> bytes:
    """Return the batch's bytes, fewer when the file ends within it."""
    return file.read(position, min(header.size, file.size() - position))


def _row(position: int, header: "BatchHeader") -> dict[str, Any]:
    return {
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": header.codec.name.lower(),
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "is_control": header.is_control,
    }
