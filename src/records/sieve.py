"""What compaction needs of the codec: compiled when `codec` runs compiled, else in plain Python.

`KeyMap` knows the newest offset of each key, `Sieve` drops records by it. See `_plain_clean.py`,
which says what they do.
"""

from typing import TYPE_CHECKING

from .codec import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import _plain_clean as _kernel  # the other has the same, see `_codec.pyi`
else:
    from . import _codec as _kernel

KeyMap = _kernel.KeyMap
Sieve = _kernel.Sieve
rebase_records = _kernel.rebase_records
