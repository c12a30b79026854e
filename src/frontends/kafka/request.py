"""A request from its frame to its response: the fields for handlers, and those for the connection.

Built once for each request, so it is built cheaply: with positional arguments, and without a second
object for the header. The versions of request and response headers depend on the request's
(KIP-482): the client id keeps its two-byte length in flexible headers too, and the response header
of ApiVersions never has tagged fields, since the client may not have the broker's version yet.
"""

import asyncio
from collections.abc import Callable
from struct import Struct, error
from typing import Final, TypeAlias

from ...errors import InvalidRequest
from .api import Answer, Call, Client, KafkaApi, RequestRun

API_VERSIONS: Final = 18
TAGS_MAX: Final = 10_000  # tagged fields of one header
CLIENT_ID_BYTES_MAX: Final = 1_024

NO_FRAME: Final = memoryview(b"")

_START: Final = Struct(">hhih")  # key, version, correlation id, length of the client id
_START_SIZE: Final = _START.size
_SIZE_AND_ID: Final = Struct(">ii")


Header: TypeAlias = tuple[int, int, int, str, int]
"""Key, version, correlation id, client id (may be empty), size without the tagged fields."""


def read_header(frame: memoryview) -> Header:
    """Read the header of a request; raises InvalidRequest."""
    try:
        key, version, correlation_id, length = _START.unpack_from(frame)
    except error:
        raise InvalidRequest(
            f"request: {len(frame)} bytes are shorter than a request header"
        ) from None
    end = _START_SIZE + length if length > 0 else _START_SIZE
    if length > CLIENT_ID_BYTES_MAX or end > len(frame):
        raise InvalidRequest(
            f"client id: its length is {length} bytes in a frame of {len(frame)}; send at most"
            f" {CLIENT_ID_BYTES_MAX}"
        )
    try:
        client_id = str(frame[_START_SIZE:end], "utf-8")
    except UnicodeDecodeError:
        raise InvalidRequest("client id: not valid UTF-8") from None
    return key, version, correlation_id, client_id, end


def skip_tags(frame: memoryview, at: int) -> int:
    """Return the end of the tagged fields at a position; raises InvalidRequest."""
    if at < len(frame) and not frame[at]:
        return at + 1  # no tagged fields
    count, at = _read_varint(frame, at)
    if count > TAGS_MAX:
        raise InvalidRequest(f"request header: {count} tagged fields; send at most {TAGS_MAX}")
    for _ in range(count):
        _, at = _read_varint(frame, at)
        size, at = _read_varint(frame, at)
        at += size
        if at > len(frame):
            raise InvalidRequest("request header: a tagged field ends after the frame")
    return at


def answer_head(correlation_id: int, body_size: int, *, flexible: bool) -> bytes:
    """Return the size and the response header that precede a body. `flexible`: with an empty list
    of tagged fields."""
    if flexible:
        return _SIZE_AND_ID.pack(body_size + 5, correlation_id) + b"\x00"
    return _SIZE_AND_ID.pack(body_size + 4, correlation_id)


def _read_varint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(frame) and shift < 35:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise InvalidRequest("request header: a varint is longer than 5 bytes")


class Request(Call):
    """A received frame until its response is sent."""

    __slots__ = (
        *("answer", "begin", "count", "failure", "frame", "held", "is_done", "is_placed"),
        *("elements", "is_unreadable", "task", "work_began_us", "work_us"),
    )

    def __init__(
        self,
        api: KafkaApi,
        version: int,
        correlation_id: int,
        client_id: str,
        client: Client,
        frame: memoryview,
        begin: int,
        now_ms: int,
    ) -> None:
        self.api = api
        self.version = version  # of the response too
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = None  # set after decoding: see `Call`
        self.client = client
        self.size = self.held = len(frame)  # `held`: bytes of the server's request memory
        self.began_ms = now_ms
        self.abandon = None
        self.frame = frame
        self.elements = 0  # of its arrays, if the schema decodes it
        self.begin = begin  # offset of the body
        # of an unsupported version, answered without decoding (ApiVersions)
        self.is_unreadable = False
        self.is_placed = False  # the next request of its kind may begin
        self.is_done = False  # `answer` or `failure` is set
        self.answer: Answer = None
        self.failure: Exception | None = None
        self.count = 1  # of requests; more for a run, see `of_run`
        self.task: asyncio.Task[None] | None = None
        self.work_us = 0  # time for which it occupied the event loop
        self.work_began_us: int | None = None  # start of the current step on the event loop

    @classmethod
    def of_run(cls, api: KafkaApi, client: Client, run: RequestRun, now_ms: int) -> "Request":
        """Return one request for all requests of a run. It has no frame and holds no memory."""
        request = cls(api, api.high, 0, "", client, NO_FRAME, 0, now_ms)
        request.count, request.size, request.is_placed = run.count, run.size, True
        return request


UsualHeader: TypeAlias = tuple[int, int, str, int]
"""Version, correlation id, client id, position of the body."""


def read_usual_header(
    source: memoryview, start: int, end: int, api: KafkaApi
) -> UsualHeader | None:
    """Read the header of a request of `api` in the frame source[start:end]. Return None for a
    header that is not usual: with an unsupported version, tagged fields, or a client id that is not
    ASCII."""
    try:
        _, version, correlation_id, length = _START.unpack_from(source, start)
        begin, client_id = start + _START_SIZE, ""
        if length > 0:
            if length > CLIENT_ID_BYTES_MAX:
                return None
            client_id = str(source[begin : begin + length], "ascii")
            begin += length
        if not api.low <= version <= api.high:
            return None
        if version >= api.flexible:
            if source[begin]:
                return None
            begin += 1
    except (error, IndexError, UnicodeDecodeError):
        return None
    return (version, correlation_id, client_id, begin) if begin <= end else None


def read_request(
    frame: memoryview, client: Client, find: Callable[[int], KafkaApi | None], now_ms: int
) -> Request:
    """Read a frame's header, not its body. Raises InvalidRequest, also for an unsupported key or
    version."""
    key, version, correlation_id, client_id, begin = read_header(frame)
    api = find(key)
    if api is None:
        raise InvalidRequest(
            f"request {key}: version {version} is not supported here; ask for the supported ones"
            " with ApiVersions"
        )
    if api.low <= version <= api.high:
        if version >= api.flexible:
            begin = skip_tags(frame, begin)
        return Request(api, version, correlation_id, client_id, client, frame, begin, now_ms)
    if api.key != API_VERSIONS:
        raise InvalidRequest(
            f"{api.name}: version {version} is not supported; use versions {api.low} to {api.high}"
        )
    # The body cannot be decoded; the response is in version 0, which every client can decode.
    request = Request(api, 0, correlation_id, client_id, client, frame, begin, now_ms)
    request.is_unreadable = True
    return request
