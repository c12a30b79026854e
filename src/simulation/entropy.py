"""Seeded randomness: a stream for each (seed, node, incarnation, purpose).

A stream's start depends on its path alone, so a draw in one never shifts another: a node that draws
once more does not change what the network draws. Paths are hashed with blake2b; Python's own hash()
differs from process to process.
"""

import hashlib
import random


class SimEntropy:
    """One stream. `path` names it, "/" between the parts."""

    def __init__(self, path: str) -> None:
        self._path = path
        digest = hashlib.blake2b(path.encode(), digest_size=16).digest()
        self._random = random.Random(int.from_bytes(digest, "big"))

    def stream(self, purpose: str) -> "SimEntropy":
        """Return the stream of a purpose below this one, at its start."""
        return SimEntropy(f"{self._path}/{purpose}")

    def below(self, end: int) -> int:
        """Return an int of [0, end); end >= 1."""
        assert end >= 1, f"nothing lies in [0, {end})"
        bits = end.bit_length()
        drawn = self._random.getrandbits(bits)
        while drawn >= end:
            drawn = self._random.getrandbits(bits)
        return drawn

    def uniform(self, low: float, high: float) -> float:
        """Return a float of [low, high]."""
        return low + (high - low) * self._random.random()

    def token(self, size: int) -> bytes:
        """Return `size` random bytes."""
        return self._random.randbytes(size)

    # --- shapes that the harness draws; nodes see the port only ---

    def chance(self, probability: float) -> bool:
        """Whether an event of this probability happens; draws nothing for 0, so that a fault that
        is off leaves its stream untouched."""
        return probability > 0 and self._random.random() < probability

    def spread(self, low: int, high: int) -> int:
        """Return an int of [low, high] with every order of magnitude alike (log-uniform)."""
        assert 0 < low <= high, f"[{low}, {high}] has no logarithm"
        return min(high, int(low * (high / low) ** self._random.random()))

    def shuffle(self, items: list[object]) -> None:
        """Put a list into a drawn order (Fisher-Yates on below())."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
