"""CRC-32C, the checksum of batches, frames and small files (RFC 3720, 12.1).

Only the compiled module of the package `crc32c` is loaded: the package itself also imports its
command line and metadata readers, which take a twentieth of a node's start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final, TypeAlias

Checksum: TypeAlias = Callable[..., int]

_PACKAGE: Final = "crc32c"
_COMPILED: Final = "crc32c._crc32c"


def _load_crc32c() -> Checksum:
    package = PathFinder.find_spec(_PACKAGE)
    folders = None if package is None else package.submodule_search_locations
    compiled = None if folders is None else PathFinder.find_spec(_COMPILED, folders)
    if compiled is None or compiled.loader is None:  # packed in another layout
        from crc32c import crc32c as whole

        return whole
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    found: Checksum = module.crc32c
    return found


crc32c: Final = _load_crc32c()
"""crc32c(data, value=0): the checksum of `data`, continued from `value`, the checksum of the bytes
before it."""
