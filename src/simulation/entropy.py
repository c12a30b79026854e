"""Seeded randomness: an independent stream for each (seed, node, incarnation, purpose).

The start of a stream depends on its path alone, so an additional draw of a node does not change the
draws of the network. Paths are hashed with blake2b, since hash() differs between processes.
"""

import hashlib
import random


class SimEntropy:
    """A random stream, named by a path with "/" between its parts."""

    def __init__(self, path: str) -> None:
        self._path = path
        digest = hashlib.blake2b(path.encode(), digest_size=16).digest()
        self._random = random.Random(int.from_bytes(digest, "big"))

    def stream(self, purpose: str) -> "SimEntropy":
        """Return the stream of a purpose below this one, at its start."""
        return SimEntropy(f"{self._path}/{purpose}")

    def draw_from(self, source: random.Random) -> None:
        """Draw from `source` from now on; it continues at the state of this stream."""
        source.setstate(self._random.getstate())
        self._random = source

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

    # --- distributions for the harness; nodes use the port only ---

    def chance(self, probability: float) -> bool:
        """Return True with this probability. Draw nothing for 0, so that a disabled fault leaves
        its stream untouched."""
        return probability > 0 and self._random.random() < probability

    def spread(self, low: int, high: int) -> int:
        """Return a log-uniform int of [low, high]."""
        assert 0 < low <= high, f"[{low}, {high}] has no logarithm"
        return min(high, int(low * (high / low) ** self._random.random()))

    def shuffle(self, items: list[object]) -> None:
        """Shuffle a list in place (Fisher-Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
