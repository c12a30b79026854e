"""The checksum equals that of the crc32c package, which is not imported for it."""

import subprocess
import sys

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.records.checksum import crc32c


def test_the_checksum_of_the_standards_example() -> None:
    """RFC 3720, B.4: 32 bytes of zeroes, of ones, ascending."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_checksum_continues_from_a_previous_value(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(memoryview(first + second))
    assert crc32c(first) == package.crc32c(first)


@pytest.mark.slow
def test_only_the_compiled_module_is_loaded() -> None:
    code = (
        "import sys; from quorumlog.records.checksum import crc32c; "
        "print(*sorted({'crc32c', 'argparse', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
