"""A request from its frame to its answer: what handlers see of it, and what its connection knows.

Every request makes one of these, so they are made plainly: by position, and without a second object
for the header.
"""

import asyncio
from collections.abc import Callable

from ...errors import InvalidRequest
from .api import Answer, Api, Call, Client
from .headers import API_VERSIONS, read_header, skip_tags


class Request(Call):
    """A frame on its way to its answer."""

    __slots__ = (
        *("answer", "begin", "failure", "frame", "held", "is_done", "is_placed", "is_unreadable"),
        *("task", "work_began_us", "work_us"),
    )

    def __init__(
        self,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str,
        client: Client,
        frame: memoryview,
        begin: int,
        now_ms: int,
    ) -> None:
        self.api = api
        self.version = version  # of the answer too
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = None  # once it is decoded: see `Call`
        self.client = client
        self.size = self.held = len(frame)  # `held`: bytes of the server's memory
        self.began_ms = now_ms
        self.abandon = None
        self.frame = frame
        self.begin = begin  # of the body
        self.is_unreadable = False  # it is answered all the same, with how requests are to be
        self.is_placed = False  # the next one of its kind may begin
        self.is_done = False  # one of the next two says how
        self.answer: Answer = None
        self.failure: Exception | None = None
        self.task: asyncio.Task[None] | None = None
        self.work_us = 0  # for which it kept the loop
        self.work_began_us: int | None = None  # it keeps the loop since then


def read_request(
    frame: memoryview, client: Client, find: Callable[[int], Api | None], now_ms: int
) -> Request:
    """Read a frame's header; the body is not looked at. Raises InvalidRequest, also for what is not
    offered."""
    key, version, correlation_id, client_id, begin = read_header(frame)
    api = find(key)
    if api is None:
        raise InvalidRequest(
            f"request {key} of version {version} is not offered here; ask which are, with"
            " ApiVersions"
        )
    if api.low <= version <= api.high:
        if version >= api.flexible:
            begin = skip_tags(frame, begin)
        return Request(api, version, correlation_id, client_id, client, frame, begin, now_ms)
    if api.key != API_VERSIONS:
        raise InvalidRequest(
            f"{api.name} is offered in versions {api.low} to {api.high}, not {version}"
        )
    # Nobody here can read it; it is told so as all can read.
    request = Request(api, 0, correlation_id, client_id, client, frame, begin, now_ms)
    request.is_unreadable = True
    return request
