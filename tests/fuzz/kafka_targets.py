"""Fuzz targets of the Kafka listener: frames and requests that are almost valid.

A decoder that allocates an unchecked length can exhaust the memory of the process: each length must
be checked before it is used.
"""

import asyncio
import struct
from random import Random
from typing import Final

from tests.kit.kafka_client import (
    ConnectionEnded,
    body_of,
    connected,
    framed,
    is_flexible,
    request_of,
)

from quorumlog import simulation
from quorumlog.errors import ConnectionFailed, OutcomeUnknown, QuorumlogError
from quorumlog.frontends.kafka import messages
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.frames import ReadBuffers, RequestFrameReader
from quorumlog.frontends.kafka.request import read_header, skip_tags
from quorumlog.runtime import Runtime

from ..unit.frontends.kafka.any_request import OFFERED, any_message, bytes_of, schema_of
from ..unit.frontends.kafka.bare_server import PLAIN_KEY, bare_server, topics

_APIS: Final = {api.key: api for api in APIS}
_CHOICE: Final = struct.Struct(">H")  # before a body: the index in OFFERED


# --- frames --------------------------------------------------------------------------------------


def frames(content: bytes) -> object:
    """Split bytes into pieces by the sizes in the bytes themselves."""
    reader = RequestFrameReader(ReadBuffers(), lambda key: 1 << 20)
    found = []
    while content:
        buffer = reader.buffer()
        size = min(len(buffer), len(content), 1 + content[0])
        buffer[:size] = content[:size]
        content = content[size:]
        reader.received(size)
        while (frame := reader.next()) is not None:
            found.append(frame)
        reader.keep()
    return found


def flows() -> list[bytes]:
    requests = [struct.pack(">hhih", key, 0, 1, -1) + b"\xc8" * size for key, size in _SIZES]
    return [b"".join(framed(request) for request in requests), framed(requests[0])]


_SIZES: Final = ((3, 4), (0, 3_000), (18, 0), (0, 70_000))


def header(content: bytes) -> object:
    frame = memoryview(content)
    *read, size = read_header(frame)
    return read, skip_tags(frame, size)


def headers() -> list[bytes]:
    return [
        request_of(3, 9, b"body", correlation_id=7, client_id="client"),
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x02\x01\x02ab\x07\x00",
    ]


# --- requests ------------------------------------------------------------------------------------


def request(content: bytes) -> object:
    """Decode a body as the request that its first two bytes select."""
    if len(content) < _CHOICE.size:
        return None
    (choice,) = _CHOICE.unpack_from(content)
    key, version = OFFERED[choice % len(OFFERED)]
    api, frame = _APIS[key], memoryview(content)
    if api.read is not None:
        return api.read(version, frame[_CHOICE.size :])
    walk = messages.check_lengths(api, version, frame, _CHOICE.size)
    return messages.decode(api, version, frame, _CHOICE.size, walk)


def requests() -> list[bytes]:
    """Return one request of each key and version."""
    random = Random("requests")
    return [_CHOICE.pack(number) + _body(number, random) for number in range(len(OFFERED))]


def _body(number: int, random: Random) -> bytes:
    return bytes_of(any_message(schema_of(*OFFERED[number]), random))


# --- connections ---------------------------------------------------------------------------------


def served(content: bytes) -> object:
    """Send bytes to a listener through the simulated pipe, which splits them; other connections
    must not be affected."""

    async def main(runtime: Runtime) -> int:
        async with (
            bare_server(runtime, connections_idle_ms_max=4_000, frame_ms_max=2_000) as made,
            connected(runtime, made[1]["one"]) as good,
            connected(runtime, made[1]["one"]) as odd,
        ):
            odd.send_raw(content)
            answer = await good.ask(PLAIN_KEY, 5, **topics("t"))
            assert len(answer.topics) == 1
            answered = 0
            while not odd.has_ended:
                try:
                    await odd.frame()
                    answered += 1
                except ConnectionEnded:
                    break
            assert made[0].memory.taken == 0
            return answered

    try:
        return simulation.run(main)
    except TimeoutError:
        raise AssertionError("a connection neither responds nor ends") from None


def conversations() -> list[bytes]:
    bodies = [(version, body_of(PLAIN_KEY, version, topics("one", "two"))) for version in (2, 5, 7)]
    several = b"".join(
        framed(request_of(PLAIN_KEY, version, body, correlation_id=version))
        for version, body in bodies
    )
    return [several, several[:-9], framed(struct.pack(">hhih", 18, 0, 1, -1))]


# --- a node --------------------------------------------------------------------------------------


def mangled(choice: int, random: Random) -> bytes:
    """Return a frame with a request of this key and version, with random changes."""
    from .targets import mutated

    key, version = OFFERED[choice % len(OFFERED)]
    body = _body(choice % len(OFFERED), random)
    if random.random() < 0.8:
        body = mutated(body, random)
    tags = b"\x00" if is_flexible(key, version) else b""
    return framed(struct.pack(">hhih", key, version, choice, 1) + b"f" + tags + body)


async def is_survived(runtime: Runtime, address: str, frame: bytes) -> str:
    """Send a frame on a new connection; return how the connection ended."""
    try:
        async with connected(runtime, address) as client:
            client.send_raw(frame)
            async with asyncio.timeout(1):
                await client.frame()
            return "answered"
    except (ConnectionEnded, OutcomeUnknown, ConnectionFailed, QuorumlogError):
        return "ended"
    except TimeoutError:
        return "waiting"  # the request waits, or has no response
