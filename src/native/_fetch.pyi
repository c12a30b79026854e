"""Types of the compiled Fetch requests."""

from ..records.compression import Buffer
from . import FetchTopic, UsualFetch

NUMBERS: dict[str, int]

def read_fetch(version: int, body: Buffer) -> UsualFetch | None: ...
def encode_fetch(
    version: int,
    topics: list[FetchTopic],
    results: list[tuple[int, int, int, int]],
    tells_aborted: bool,
) -> list[bytes]: ...
