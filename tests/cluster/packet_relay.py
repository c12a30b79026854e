"""A relay of IP packets with delay, loss and reordering: `packet_relay.py DEVICE IMPAIRMENT`.

The kernel routes the packets of one node into a TUN device. This program delays each of them and
writes it to the same device, from which the kernel forwards it to its destination.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from dataclasses import astuple, dataclass
from typing import Final

TUN: Final = "/dev/net/tun"
TUNSETIFF: Final = 0x400454CA
IFF_TUN: Final = 0x0001
IFF_NO_PI: Final = 0x1000  # packets without a header of the device
PACKET_MAX: Final = 1 << 16  # bytes
HELD_MAX: Final = 20_000  # packets; more are dropped, as by a full router
REORDERED_S: Final = 0.02  # maximum delay of a reordered packet


@dataclass(frozen=True, slots=True, kw_only=True)
class Impairment:
    """The impairment of a node's packets, in each direction."""

    delay_ms: int = 0
    jitter_ms: int = 0  # maximum addition to the delay; the order is kept
    lost: int = 0  # percent of the packets
    reordered: int = 0  # percent of the packets, which later ones may overtake

    def arguments(self) -> list[str]:
        """Return the arguments of the program."""
        return [str(number) for number in astuple(self)]


def open_device(name: str) -> int:
    """Return a descriptor of the device, which exists."""
    descriptor = os.open(TUN, os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def relay(device: int, impairment: Impairment) -> None:
    """Relay packets until the process is killed."""
    held: list[tuple[float, int, bytes]] = []  # a heap by (send time, number)
    number, last_s = 0, 0.0
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([device], [], [], wait_s)[0]:
            packet = os.read(device, PACKET_MAX)
            if random.random() * 100 >= impairment.lost and len(held) < HELD_MAX:
                delay_ms = impairment.delay_ms + random.uniform(0, impairment.jitter_ms)
                at_s = last_s = max(last_s, time.monotonic() + delay_ms / 1_000)
                if random.random() * 100 < impairment.reordered:
                    at_s += random.uniform(0, REORDERED_S)
                number += 1
                heapq.heappush(held, (at_s, number, packet))
        while held and held[0][0] <= time.monotonic():
            os.write(device, heapq.heappop(held)[2])


def main() -> None:
    """Print a line when the device is open, and relay until the process is killed."""
    _, name, *numbers = sys.argv
    delay_ms, jitter_ms, lost, reordered = map(int, numbers)
    device = open_device(name)
    print("ready", flush=True)
    relay(
        device,
        Impairment(delay_ms=delay_ms, jitter_ms=jitter_ms, lost=lost, reordered=reordered),
    )


if __name__ == "__main__":
    main()
