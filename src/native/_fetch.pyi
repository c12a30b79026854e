"""Types of the compiled Fetch requests; `_plain_fetch.py` documents them."""

from ._plain_fetch import encode_fetch as encode_fetch
from ._plain_fetch import read_fetch as read_fetch
from ._plain_fetch import whole_batches as whole_batches

NUMBERS: dict[str, int]
