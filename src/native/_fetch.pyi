"""Types of the compiled Fetch requests; `_plain_fetch.py` documents them."""

from ._plain_fetch import encode_fetch as encode_fetch
from ._plain_fetch import read_fetch as read_fetch

NUMBERS: dict[str, int]
