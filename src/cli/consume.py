"""`quorumlog consume`: records of a topic on stdout, one a line."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    CONNECT_TIMEOUT_MS,
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    Output,
    OutputOption,
    TopicArgument,
)
from .output import text_or_base64, time_text

if TYPE_CHECKING:
    from ..clients import ConsumerRecord, Position


def consume(
    topic: TopicArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="earliest, latest, an OFFSET, or a TIME (ISO 8601; UTC unless it says otherwise).",
        ),
    ] = "earliest",
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after so many records.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this partition; repeatable."),
    ] = None,
    exit_at_end: Annotated[
        bool,
        typer.Option("--exit-at-end", "-e", help="Stop at the end of what is there now."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show partition, offset, time and key too."),
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.HUMAN,
) -> None:
    """Print records, waiting for new ones until Ctrl-C, --max or --exit-at-end.

    The order is that of each partition. `--output json` prints one object a record.
    """
    from ..clients.blocking import connect

    position = parse_position(start)
    with connect(bootstrap, connect_timeout_ms=CONNECT_TIMEOUT_MS) as log:
        log.partitions(topic)  # a topic that does not exist is told before anything else
        consumer = log.consumer(
            assign={topic: partition or None}, start=position, until_end=exit_at_end
        )
        with consumer:
            left = max_records
            while left is None or left > 0:
                records = consumer.poll(max_records=left, timeout_ms=None)
                if not records:
                    break
                typer.echo("\n".join(line_of(record, output, verbose) for record in records))
                left = None if left is None else left - len(records)


def parse_position(text: str) -> "Position":
    """Return what --from means; raises a usage error."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"--from {text!r}: give earliest, latest, an offset, or a time such as "
            "2024-12-31T18:00:00"
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def line_of(record: "ConsumerRecord", output: Output, verbose: bool) -> str:
    """Return the line that stands for a record."""
    if output is Output.JSON:
        return json.dumps(record_json(record), ensure_ascii=False)
    value, _ = text_or_base64(record.value)
    if not verbose:
        return value or ""
    key, _ = text_or_base64(record.key)
    time = time_text(record.timestamp_ms)
    return f"{record.partition}\t{record.offset}\t{time}\t{key or '-'}\t{value or ''}"


def record_json(record: "ConsumerRecord") -> dict[str, Any]:
    """Return the JSON contract of a record: text where it is UTF-8, else base64 and `encoding`."""
    value, is_value_base64 = text_or_base64(record.value)
    key, is_key_base64 = text_or_base64(record.key)
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "value": value,
        "headers": [_header_json(name, content) for name, content in record.headers],
    }
    if is_value_base64:
        row["encoding"] = "base64"
    if is_key_base64:
        row["key_encoding"] = "base64"
    return row


def _header_json(name: str, content: bytes | None) -> dict[str, Any]:
    value, is_base64 = text_or_base64(content)
    row: dict[str, Any] = {"key": name, "value": value}
    if is_base64:
        row["encoding"] = "base64"
    return row
