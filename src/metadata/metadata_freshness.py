"""Freshness of a broker's metadata, from the committed offsets in heartbeat responses. Pure."""


class MetadataFreshness:
    """The time up to which a broker has all committed metadata, by its own clock."""

    def __init__(self) -> None:
        self.fresh_ms: int | None = None  # everything committed at this time is applied
        # (send time of a heartbeat, committed offset in its response): the first one whose offset
        # is not applied yet, and the last one.
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def on_response(self, sent_ms: int, committed_offset: int) -> None:
        """Record the committed offset in the response to a heartbeat sent at `sent_ms`."""
        self._last = (sent_ms, committed_offset)
        if self._first is None:
            self._first = self._last

    def on_applied(self, offset: int) -> None:
        """Record that the metadata is applied up to an offset (inclusive)."""
        if self._first is not None and self._first[1] <= offset:
            self.fresh_ms, self._first = self._first[0], self._last
            if self._last is not None and self._last[1] <= offset:
                self.fresh_ms, self._first = self._last[0], None
