"""Replies to relayed commands, encoded and decoded in steps of the event loop."""

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from ...proto import controller_pb2 as pb
from .. import codec
from ..commands import RelayedCommand, Submitted

_R = TypeVar("_R")


async def encode_reply(command: RelayedCommand[Any], submitted: Submitted[Any]) -> pb.RelayResponse:
    """Return the response to a command; yield to the event loop between steps."""
    return await _in_steps(codec.encode_reply(command, submitted))


async def decode_reply(command: RelayedCommand[_R], response: pb.RelayResponse) -> Submitted[_R]:
    """Return the result of a command; yield to the event loop between steps."""
    return await _in_steps(codec.decode_reply(command, response))


async def _in_steps(steps: Generator[None, None, _R]) -> _R:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _R = end.value
            return result
        await asyncio.sleep(0)
