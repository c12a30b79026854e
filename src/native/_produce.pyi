"""Types of the compiled produce requests; `_plain_produce.py` documents them."""

from ._plain_produce import LogTail as LogTail
from ._plain_produce import ProduceRun as ProduceRun

NUMBERS: dict[str, int]
