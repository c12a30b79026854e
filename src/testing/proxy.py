"""A TCP proxy with faults on demand, between a healthy client and a healthy server.

It does not interpret the bytes it forwards. It runs in a thread of its own with a loop of its own,
so that blocking tests, asyncio tests and other processes can be on either side. Every method may be
called from any thread, and has taken effect when it returns.

A broker returns its address to clients: for them to stay with the proxy, `advertised.grpc` of the
broker must be the proxy's address.
"""

from types import TracebackType

from ..errors import InvalidRequest
from .loop_thread import LoopThread
from .relay import Direction, Relay


class ForwardingProxy:
    """Forwards every connection to `target`, "host:port".

    ```python
    with ForwardingProxy("127.0.0.1:9094") as proxy:
        with quorumlog.connect(proxy.address) as log: ...
        proxy.cut()
    ```
    """

    def __init__(self, target: str, *, port: int = 0) -> None:
        """Create a proxy to `target`; `port` 0 picks a free port."""
        self._relay = Relay(target, port=port)
        self._opened: LoopThread | None = None

    # --- start and stop ---------------------------------------------------------------------

    def __enter__(self) -> "ForwardingProxy":
        self._opened = thread = LoopThread("forwarding-proxy")
        try:
            thread.run(self._relay.listen())
        except BaseException:
            thread.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.call(self._relay.close)
        self._thread.stop()

    @property
    def _thread(self) -> LoopThread:
        if self._opened is None:
            raise InvalidRequest("the proxy is not started: use it in `with`")
        return self._opened

    @property
    def address(self) -> str:
        """The "host:port" it listens on."""
        return self._relay.address

    @property
    def target(self) -> str:
        """The "host:port" to which new connections are forwarded."""
        return self._relay.target

    @target.setter
    def target(self, address: str) -> None:
        self._relay.target = address

    @property
    def delay_s(self) -> float:
        """The delay of each chunk, in both directions, in seconds."""
        return self._relay.delay_s

    @delay_s.setter
    def delay_s(self, seconds: float) -> None:
        self._relay.delay_s = seconds

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._thread.call(lambda: len(self._relay.links))

    def passed_bytes(self, direction: Direction) -> int:
        """Return the number of bytes forwarded in a direction."""
        return self._thread.call(lambda: self._relay.lines[direction].passed_bytes)

    # --- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Abort every connection; new ones are accepted."""
        self._thread.call(self._relay.abort_all)

    def silence(self) -> None:
        """Stop forwarding on the open connections for ever, like a firewall that lost its state.

        They stay open. New connections work.
        """
        self._thread.call(self._relay.silence_all)

    def hold(self, *directions: Direction) -> None:
        """Hold the bytes of some directions, both by default, until `release`. Connections stay
        open."""
        held = directions or tuple(Direction)

        def change() -> None:
            lines = self._relay.lines
            flowing = [way for way in Direction if lines[way].is_flowing and way not in held]
            self._relay.flow(*flowing)

        self._thread.call(change)

    def release(self) -> None:
        """Forward the held bytes, in order."""
        self._thread.call(lambda: self._relay.flow(*Direction))

    def refuse(self) -> None:
        """Refuse new connections until `admit`."""
        self._thread.call(self._relay.refuse)

    def admit(self) -> None:
        """Accept connections again, at the same address."""
        self._thread.run(self._relay.listen())

    def corrupt(self, direction: Direction, *, chunks: int = 1) -> None:
        """Flip one bit of each of the next `chunks` chunks in a direction."""

        def change() -> None:
            self._relay.lines[direction].corrupt_chunks = chunks

        self._thread.call(change)

    def cut_after(self, direction: Direction, count: int) -> None:
        """Abort a connection after `count` more bytes (1 or more) in a direction, counted over
        all: the last chunk arrives torn."""
        if count < 1:
            raise InvalidRequest(f"count is {count}: give 1 or more bytes")

        def change() -> None:
            self._relay.lines[direction].cut_after_bytes = count

        self._thread.call(change)
