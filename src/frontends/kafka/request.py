"""A request from its frame to its response: the fields for handlers, and those for the connection.

Built once for each request, so it is built cheaply: with positional arguments, and without a second
object for the header.
"""

import asyncio
from collections.abc import Callable

from ...errors import InvalidRequest
from .api import Answer, Call, Client, KafkaApi
from .headers import API_VERSIONS, read_header, skip_tags


class Request(Call):
    """A received frame until its response is sent."""

    __slots__ = (
        *("answer", "begin", "failure", "frame", "held", "is_done", "is_placed", "is_unreadable"),
        *("task", "work_began_us", "work_us"),
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
        self.begin = begin  # offset of the body
        # of an unsupported version, answered without decoding (ApiVersions)
        self.is_unreadable = False
        self.is_placed = False  # the next request of its kind may begin
        self.is_done = False  # `answer` or `failure` is set
        self.answer: Answer = None
        self.failure: Exception | None = None
        self.task: asyncio.Task[None] | None = None
        self.work_us = 0  # time for which it occupied the event loop
        self.work_began_us: int | None = None  # start of the current step on the event loop


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
