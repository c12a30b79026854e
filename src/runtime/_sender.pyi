"""Types of the compiled sender; see `range_sender.py`."""

CAN_SEND: bool
"""Whether this system has what it takes; without, no Sender can be made."""

def send_now(
    socket: int, file: int, position: int, size: int, head: bytes, tail: bytes, probes: bool
) -> tuple[int, int]:
    """Send bytes, a range of a file and bytes to a non-blocking socket as far as there is room;
    returns the bytes sent, and errno (0: none, -1: the file ends before the range, -2: `probes`,
    and the page cache does not have the range)."""

class Sender:
    """Threads for ranges of files, started as they are needed. All calls are for one thread."""

    def __init__(self, threads: int, piece: int, patience_ms: int, bytes_per_ms: int) -> None:
        """At most so many threads; bytes of one sendfile; see `PATIENCE_MS`, `BYTES_PER_MS_MIN`.
        Raises OSError."""

    @property
    def descriptor(self) -> int:
        """Readable when jobs have ended that `ended` has not told of."""

    @property
    def under_way(self) -> int:
        """Jobs that `ended` has not told of."""

    def begin(
        self,
        socket: int,
        file: int,
        position: int,
        size: int,
        head: bytes,
        tail: bytes,
        probes: bool,
    ) -> int:
        """Have bytes, a range of a file and bytes sent to a non-blocking socket; returns the job's
        number, -1: there is no descriptor, memory or thread for it. With `probes` nothing is sent
        when the page cache does not have the range. `socket` may be closed at once, `file` not
        before the job has ended."""

    def stop(self, number: int) -> None:
        """Have a job send no more, soon."""

    def ended(self) -> list[tuple[int, int, int, bool]]:
        """Return the jobs that have ended: number, bytes sent, errno (0: none, -1: the file ends
        before the range), whether the range was not in the page cache."""

    def close(self) -> None:
        """End the threads once their jobs have ended; call it again as you like, and nothing
        else."""
