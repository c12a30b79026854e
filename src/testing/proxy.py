"""A TCP proxy that misbehaves on demand: between a client and a server that are both healthy.

It knows nothing of what it forwards. It lives in a thread of its own with a loop of its own, so
that blocking tests, asyncio tests and other processes can stand on either side; every method may be
called from any thread, and has taken effect when it returns.

A broker tells its clients where it is: for them to stay with the proxy, `advertised.grpc` of the
broker must be the proxy's address.
"""

from types import TracebackType

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
        """`port` 0: any that is free."""
        self._relay = Relay(target, port=port)
        self._thread = LoopThread("forwarding-proxy")

    # --- life --------------------------------------------------------------------------------

    def __enter__(self) -> "ForwardingProxy":
        self._thread.start()
        try:
            self._thread.run(self._relay.listen())
        except BaseException:
            self._thread.stop()
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
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return self._relay.address

    @property
    def target(self) -> str:
        """Where connections to come are forwarded to, "host:port"."""
        return self._relay.target

    @target.setter
    def target(self, address: str) -> None:
        self._relay.target = address

    @property
    def delay_s(self) -> float:
        """How long each chunk waits, in both directions."""
        return self._relay.delay_s

    @delay_s.setter
    def delay_s(self, seconds: float) -> None:
        self._relay.delay_s = seconds

    @property
    def connections(self) -> int:
        """How many connections it carries now."""
        return self._thread.call(lambda: len(self._relay.links))

    def passed_bytes(self, direction: Direction) -> int:
        """How many bytes it has forwarded in a direction."""
        return self._thread.call(lambda: self._relay.lines[direction].passed_bytes)

    # --- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Abort every connection; new ones are taken."""
        self._thread.call(self._relay.abort_all)

    def silence(self) -> None:
        """Let the connections that there are fall silent for ever, as behind a firewall that forgot
        them: they stay open and nothing passes. New ones are well."""
        self._thread.call(self._relay.silence_all)

    def hold(self, *directions: Direction) -> None:
        """Let nothing through in some directions, none given: in both, until `release`: connections
        live, and are silent."""
        held = directions or tuple(Direction)

        def change() -> None:
            lines = self._relay.lines
            flowing = [way for way in Direction if lines[way].is_flowing and way not in held]
            self._relay.flow(*flowing)

        self._thread.call(change)

    def release(self) -> None:
        """Let what was held through, in order."""
        self._thread.call(lambda: self._relay.flow(*Direction))

    def refuse(self) -> None:
        """Refuse new connections until `admit`."""
        self._thread.call(self._relay.refuse)

    def admit(self) -> None:
        """Take connections again, at the same address."""
        self._thread.run(self._relay.listen())

    def corrupt(self, direction: Direction, *, chunks: int = 1) -> None:
        """Flip one bit of each of the next `chunks` pieces that go in a direction."""

        def change() -> None:
            self._relay.lines[direction].corrupt_chunks = chunks

        self._thread.call(change)

    def cut_after(self, direction: Direction, count: int) -> None:
        """Abort the connection that carries the byte `count` (1 or more) from now in a direction,
        behind that byte: what it was part of arrives torn."""
        assert count >= 1, f"{count} bytes cannot end a connection"

        def change() -> None:
            self._relay.lines[direction].cut_after_bytes = count

        self._thread.call(change)
