"""The codec's part for compaction: compiled if `codec` runs compiled, otherwise plain Python.

`KeyMap` maps keys to their newest offsets, `Sieve` drops records by it. `_plain_clean.py` documents
both.
"""

from typing import TYPE_CHECKING

from .codec import COMPILED

if TYPE_CHECKING or not COMPILED:
    from . import _plain_clean as _kernel  # the compiled one has the same names, see `_codec.pyi`
else:
    from . import _codec as _kernel

KeyMap = _kernel.KeyMap
Sieve = _kernel.Sieve
rebase_records = _kernel.rebase_records
