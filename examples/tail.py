"""Print a topic and store the position: after a restart it continues after the last printed record.

    python examples/tail.py departures                    # until Ctrl-C
    python examples/tail.py departures --until-end

The position is a JSON file, replaced as a whole after each printed round of records. A crash in
between prints that round again: every record is printed at least once.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import quorumlog
from quorumlog.errors import QuorumlogError


def load(path: Path) -> dict[int, int]:
    """Return the next offset by partition; empty at first."""
    if not path.exists():
        return {}
    return {int(partition): offset for partition, offset in json.loads(path.read_text()).items()}


def store(path: Path, offsets: dict[int, int]) -> None:
    """Replace the file, so that a crash leaves the old one or the new one."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(offsets, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def tail(bootstrap: str, topic: str, place: Path, *, until_end: bool) -> None:
    """Print the records after the stored position, and then new ones."""
    with (
        quorumlog.connect(bootstrap) as log,
        log.consumer(topic, start="earliest", until_end=until_end) as consumer,
    ):
        for partition, offset in load(place).items():
            consumer.seek((topic, partition), offset)
        while records := consumer.poll(timeout_ms=None):
            for record in records:
                value = (record.value or b"").decode(errors="replace")
                print(f"{record.partition}:{record.offset} {value}")
            sys.stdout.flush()
            store(
                place,
                {partition: offset for (_, partition), offset in consumer.positions().items()},
            )


def main() -> int:
    """Print until Ctrl-C; return the exit code."""
    parser = argparse.ArgumentParser(description="Follow a topic and remember where.")
    parser.add_argument("topic")
    parser.add_argument("--bootstrap", default="127.0.0.1:9094")
    parser.add_argument("--place", type=Path, help="default: TOPIC.offsets.json")
    parser.add_argument("--until-end", action="store_true", help="stop at today's end")
    options = parser.parse_args()
    place = options.place or Path(f"{options.topic}.offsets.json")
    try:
        tail(options.bootstrap, options.topic, place, until_end=options.until_end)
    except KeyboardInterrupt:
        return 130
    except QuorumlogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
