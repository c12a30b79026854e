"""Faults of the simulated ports, drawn from the seed.

Each class of faults is on or off for a whole run (swarm testing), so that no fault hides another
and some runs have a single one. Crashes and power cuts are not included: scenarios trigger them.
"""

from dataclasses import dataclass

from .entropy import SimEntropy


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Fault options of a run. Probabilities are in [0, 1]; a span is an inclusive (low, high)."""

    drift_ppm_max: int = 0  # a node's clock runs fast or slow by at most this many ppm
    latency_us: tuple[int, int] = (50, 500)  # one way, log-uniform
    # a job's wait for its thread, and the delay of its result
    lane_us: tuple[int, int] = (20, 2_000)
    lane_stall: float = 0.0  # a job waits for `lane_stall_ms` instead: a device that hangs
    lane_stall_ms: tuple[int, int] = (50, 1_000)
    window_bytes: int = 65_536  # in flight on a stream before send() waits; a connection's buffers
    link_break: float = 0.0  # the connection breaks ...
    link_break_frames: tuple[int, int] = (1, 400)  # ... at this frame
    end_never_learns: float = 0.0  # of a broken connection: one end gets no reset
    late_suffix: float = 0.0  # of a broken connection: frames in flight arrive late
    late_suffix_ms: tuple[int, int] = (10, 5_000)
    network_stall: float = 0.0  # a frame waits for `network_stall_ms` (a retransmission)
    network_stall_ms: tuple[int, int] = (20, 2_000)
    cache_miss: float = 0.0  # read_cached() returns None
    short_write: float = 0.0  # write() takes a part of its bytes
    silent_death: float = 0.0  # connections of a crashed process fall silent instead of being reset

    @classmethod
    def draw(cls, entropy: SimEntropy) -> "Faults":
        """Draw the options of a run: each class is on with an even chance, with a drawn
        severity."""

        def maybe(stream: str, low: float, high: float) -> float:
            drawn = entropy.stream(stream)
            return drawn.uniform(low, high) if drawn.chance(0.5) else 0.0

        slow = entropy.stream("slow").chance(0.3)
        clocks = entropy.stream("clocks")
        windows = entropy.stream("windows")
        return cls(
            drift_ppm_max=clocks.spread(10, 20_000) if clocks.chance(0.5) else 0,
            latency_us=(200, 20_000) if slow else (50, 500),
            lane_us=(20, 20_000) if slow else (20, 2_000),
            lane_stall=maybe("lane_stall", 0.001, 0.02),
            window_bytes=windows.spread(4_096, 1 << 20) if windows.chance(0.5) else 65_536,
            link_break=maybe("link_break", 0.2, 1.0),
            end_never_learns=maybe("end_never_learns", 0.1, 0.6),
            late_suffix=maybe("late_suffix", 0.1, 0.8),
            network_stall=maybe("network_stall", 0.0005, 0.01),
            cache_miss=maybe("cache_miss", 0.05, 0.9),
            short_write=maybe("short_write", 0.01, 0.2),
            silent_death=maybe("silent_death", 0.1, 0.9),
        )


class ActiveFaults:
    """The faults in force. Every port reads them here, so that a scenario can end them."""

    def __init__(self, options: Faults) -> None:
        self.options = options

    def end_all(self) -> None:
        """End all faults; drawn speeds, clock drift and window sizes remain."""
        self.options = Faults(
            drift_ppm_max=self.options.drift_ppm_max,
            latency_us=self.options.latency_us,
            lane_us=self.options.lane_us,
            window_bytes=self.options.window_bytes,
        )
