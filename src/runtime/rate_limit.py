"""A limit in bytes per second, as a delay after each piece of work. Pure."""


class Throttle:
    """A limit of `bytes_per_second` on average; 0 disables it. Unused budget does not accumulate:
    an idle hour allows no burst."""

    __slots__ = ("_free_at_us", "_rate")

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at_us = 0  # monotonic; time at which the bytes spent so far are paid for

    def spend(self, size: int, now_ms: int) -> int:
        """Spend `size` bytes; return the delay in ms before more may be spent."""
        if self._rate == 0:
            return 0
        now_us = now_ms * 1000
        self._free_at_us = max(self._free_at_us, now_us) + size * 1_000_000 // self._rate
        return (self._free_at_us - now_us) // 1000
