"""How far a broker knows the metadata, told by what controllers answer it. Pure."""


class Knowledge:
    """Until when a broker knows all of the metadata, by its own clock."""

    def __init__(self) -> None:
        self.known_ms: int | None = None  # all that was committed then has been applied since
        # When controllers were asked up to where all is committed, and what they said: the first
        # time that this has not been applied yet, and the last one.
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def told(self, asked_ms: int, committed_offset: int) -> None:
        """A controller that was asked then says up to where all is committed."""
        self._last = (asked_ms, committed_offset)
        if self._first is None:
            self._first = self._last

    def applied(self, offset: int) -> None:
        """All is applied up to there."""
        if self._first is not None and self._first[1] <= offset:
            self.known_ms, self._first = self._first[0], self._last
            if self._last is not None and self._last[1] <= offset:
                self.known_ms, self._first = self._last[0], None
