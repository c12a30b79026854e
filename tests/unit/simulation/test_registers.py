"""The replicated register map: encoding, hash, snapshots."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.checkers.models import DONE, Read, RegisterRequest, Swap, Write
from tests.simulation.cluster.registers import (
    Registers,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)

from quorumlog.errors import InvalidRequest

REQUESTS: st.SearchStrategy[RegisterRequest] = st.one_of(
    st.just(Read()),
    st.builds(Write, st.binary(max_size=20)),
    st.builds(Swap, st.none() | st.binary(max_size=20), st.binary(max_size=20)),
)


@given(st.text(max_size=20), REQUESTS)
def test_command_round_trip(key: str, request: RegisterRequest) -> None:
    assert decode_command(encode_command(key, request)) == (key, request)


@pytest.mark.parametrize("result", [DONE, None, b"", b"value"])
def test_result_round_trip(result: object) -> None:
    assert decode_result(encode_result(result)) == result


@pytest.mark.parametrize("content", [b"", b"\x09\x00\x01\xff\xff\xff\xffk"])
def test_invalid_command_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_command(content)


def filled(*commands: bytes) -> Registers:
    registers = Registers()
    for offset, command in enumerate(commands):
        registers.committed(offset, 1, [command])
    return registers


WRITE = encode_command("k", Write(b"1"))
SWAP = encode_command("k", Swap(b"1", b"2"))


def test_commands_are_applied_and_their_results_kept() -> None:
    registers = filled(WRITE, SWAP, SWAP)
    assert registers.values == {"k": b"2"}
    assert [registers.result_at(offset) for offset in range(3)] == [DONE, b"1", b"2"]


def test_hash_depends_on_order_offset_and_epoch() -> None:
    one = filled(WRITE, SWAP)
    moved = Registers()
    moved.committed(1, 1, [WRITE])
    newer = Registers()
    newer.committed(0, 2, [WRITE])
    digests = {one.digest, filled(SWAP, WRITE).digest, moved.digest, newer.digest}
    assert len(digests) == 4


def restored(slices: Iterator[list[bytes]], end_offset: int) -> Registers:
    registers = filled(WRITE)
    registers.begin_restore()
    for values in slices:
        registers.restore(values)
    registers.end_restore(end_offset, 1)
    return registers


def test_snapshot_restores_values_and_hash() -> None:
    one = filled(*(encode_command(f"k{number}", Write(b"v")) for number in range(200)))
    other = restored(one.snapshot(), 200)
    assert (other.values, other.digest, other.applied_end) == (one.values, one.digest, 200)
    assert list(other.snapshot()) == list(one.snapshot())


def test_empty_snapshot() -> None:
    assert restored(Registers().snapshot(), 5).values == {}


def test_snapshot_does_not_change_with_the_state() -> None:
    one = filled(WRITE)
    slices = one.snapshot()
    one.committed(1, 1, [SWAP])
    assert restored(slices, 1).values == {"k": b"1"}
