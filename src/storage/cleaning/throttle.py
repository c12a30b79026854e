"""A bound on bytes a second: what was spent says how long to wait. Pure."""


class Throttle:
    """No more than `bytes_per_second` on average, 0: no bound. What was not spent is not saved up:
    an idle hour does not earn a burst."""

    __slots__ = ("_free_at_us", "_rate")

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at_us = 0  # monotonic; what was spent until now is paid for then

    def spend(self, size: int, now_ms: int) -> int:
        """Note that `size` bytes were spent; return how many ms to wait before more are."""
        if self._rate == 0:
            return 0
        now_us = now_ms * 1000
        self._free_at_us = max(self._free_at_us, now_us) + size * 1_000_000 // self._rate
        return (self._free_at_us - now_us) // 1000
