"""CRC-32C, the checksum of batches, frames and small files (RFC 3720, 12.1).

From the compiled part of the package `crc32c`, loaded by itself: the package as a whole brings its
command line and what it takes to read the metadata of packages, a twentieth of a node's start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final, TypeAlias

Checksum: TypeAlias = Callable[..., int]

_PACKAGE: Final = "crc32c"
_COMPILED: Final = "crc32c._crc32c"


def _loaded() -> Checksum:
    package = PathFinder.find_spec(_PACKAGE)
    places = None if package is None else package.submodule_search_locations
    compiled = None if places is None else PathFinder.find_spec(_COMPILED, places)
    if compiled is None or compiled.loader is None:  # packed in a way of its own
        from crc32c import crc32c as whole

        return whole
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    found: Checksum = module.crc32c
    return found


crc32c: Final = _loaded()
"""crc32c(data, value=0): the checksum of bytes, going on from that of the bytes before them."""
