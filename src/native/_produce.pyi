"""Types of the compiled produce requests; `_plain_produce.py` documents them."""

from ._plain_produce import ProduceRun as ProduceRun
from ._plain_produce import RunTail as RunTail

NUMBERS: dict[str, int]
