"""The fault injector of level `partitions`: crashes, power cuts, pauses, stops, reassignments."""

from collections.abc import Callable
from typing import Final

from quorumlog.ids import NodeId, Offset
from quorumlog.metadata import AlterReassignments, BrokerStopping, ElectLeaders, Reassignment

from .broker import ModelDisk
from .world import PartitionWorld

SECOND_US: Final = 1_000_000


class PartitionFaultInjector:
    """Injects drawn faults until the run heals."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world = world
        self._powerless: dict[
            NodeId, None
        ] = {}  # machines that lost power since everything was in sync

    def again(self, every_ms: int, fault: Callable[[], None]) -> None:
        """Inject a fault repeatedly until the run heals."""
        wait_us = self.world.random.expovariate(1 / every_ms) * 1000
        self.world.at(wait_us, self._happen, fault, every_ms)

    def _happen(self, fault: Callable[[], None], every_ms: int) -> None:
        if self.world.is_faulty:
            fault()
            self.again(every_ms, fault)

    def _alive(self) -> list[NodeId]:
        return [node for node, broker in self.world.brokers.items() if broker.is_alive]

    def crash(self) -> None:
        """Kill a process."""
        if alive := self._alive():
            self._kill(self.world.random.choice(alive), power=False)

    def _absence_us(self) -> float:
        return (
            self.world.random.choice((0.01, 0.5, 3.0, 8.0)) * self.world.random.random() * SECOND_US
        )

    def cut_power(self) -> None:
        """Cut the power of a machine."""
        if alive := self._alive():
            self._kill(self.world.random.choice(alive), power=True)

    def _kill(self, node: NodeId, *, power: bool) -> None:
        """Kill a process, and cut its machine's power if requested and tolerable."""
        power = power and self._may_cut_power()
        self.world.note("power" if power else "crash", node)
        self.world.lifecycle.end(node, clean=False, back_us=self._absence_us())
        if power:
            self._powerless[node] = None
            self.world.brokers[node].disk.cut_power()

    def wipe(self) -> None:
        """Kill a process, and replace the disk of its machine."""
        if not (alive := self._alive()):
            return
        broker = self.world.brokers[self.world.random.choice(alive)]
        self.world.note("wipe", broker.node_id)
        self.world.lifecycle.end(broker.node_id, clean=False, back_us=self._absence_us())
        broker.disk = ModelDisk(number=broker.disk.number + 1)

    def delete_records(self) -> None:
        """Delete the first records of a partition at its leader."""
        found = self.world.traffic.led_partition()
        if found is None:
            return
        broker, place = found
        log, mark = broker.disk.log(place), broker.replicas[place].high_watermark
        if log.start >= mark:
            return
        start = self.world.random.randint(log.start + 1, mark)
        self.world.note("delete", broker.node_id, place[1], start)
        self.world.checks.deleted(place, start)
        log.delete(start)

    def kill_replicas(self) -> None:
        """Kill some replicas of one partition, its leader included, within a few messages."""
        places = [state for _, state in self.world.partitions()]
        if not places:
            return
        state = self.world.random.choice(places)
        victims = [node for node in state.replicas if self.world.random.random() < 0.6]
        for node in dict.fromkeys((state.leader, *victims)):
            if node in self.world.brokers:
                delay_us = self.world.random.randint(0, 10) * self.world.latency_us()
                power = self.world.random.random() < 0.5
                self.world.at(
                    delay_us, self._kill_scheduled, node, self.world.brokers[node].life, power
                )

    def _kill_scheduled(self, node: NodeId, life: int, power: bool) -> None:
        broker = self.world.brokers[node]
        if self.world.is_faulty and broker.is_alive and broker.life == life:
            self._kill(node, power=power)

    def _may_cut_power(self) -> bool:
        """Return True if one more machine may lose unflushed data without violating the
        guarantee."""
        if self.world.options.fsync or self.world.options.is_lossy:
            return True
        back = all(
            broker.is_alive and self.world.controller.epoch_of(node) == broker.broker_epoch >= 0
            for node, broker in self.world.brokers.items()
        )
        if self._powerless and back and not self._unfinished_isr():
            self._powerless.clear()
        lost_max = min(self.world.options.min_isr, self.world.options.replication_factor) - 1
        return len(self._powerless) < lost_max

    def _unfinished_isr(self) -> bool:
        return any(
            len(state.isr) < len(state.replicas) or state.is_moving
            for _, state in self.world.partitions()
        )

    def stop(self) -> None:
        """Stop a broker cleanly."""
        if not (alive := self._alive()):
            return
        node = self.world.random.choice(alive)
        broker = self.world.brokers[node]
        self.world.note("stop", node)
        self.world.lifecycle.attempt(
            BrokerStopping(broker_id=node, broker_epoch=broker.broker_epoch)
        )
        self.world.at(self.world.latency_us() * 3, self._stopped, node, broker.life)

    def _stopped(self, node: NodeId, life: int) -> None:
        broker = self.world.brokers[node]
        if broker.is_alive and broker.life == life:
            self.world.lifecycle.end(node, clean=True, back_us=self._absence_us())

    def pause(self) -> None:
        """Pause a process, possibly beyond its session."""
        if not (alive := self._alive()):
            return
        node = self.world.random.choice(alive)
        broker = self.world.brokers[node]
        span_us = int(self.world.random.random() * 3 * self.world.options.session_timeout_ms * 1000)
        broker.paused_until_us = self.world.now_us + span_us
        self.world.note("pause", node, span_us)
        if span_us > self.world.options.session_timeout_ms * 1000:
            self._fence_silent(node, broker.life, broker.broker_epoch)
            self.world.at(
                span_us + self.world.latency_us(),
                self.world.lifecycle.unfence_after_pause,
                node,
                broker.life,
            )

    def _fence_silent(self, node: NodeId, life: int, epoch: Offset) -> None:
        after_us = self.world.options.session_timeout_ms * 1000
        self.world.at(after_us, self._fence_paused, node, epoch)

    def _fence_paused(self, node: NodeId, epoch: Offset) -> None:
        if self.world.is_faulty:
            self.world.lifecycle.fence(node, epoch)

    def move(self) -> None:
        """Start a reassignment, give one in progress another target, or cancel it."""
        places = list(self.world.partitions())
        if not places:
            return
        moving = [place for place in places if place[1].is_moving]
        if moving and self.world.random.random() < 0.5:
            places = moving
        (topic_id, index), _ = self.world.random.choice(places)
        name = self.world.controller.image.topics_by_id[topic_id].name
        nodes = sorted(self.world.brokers)
        self.world.random.shuffle(nodes)
        target = tuple(nodes[: self.world.options.replication_factor])
        wanted = target if self.world.random.random() < 0.8 else None
        self.world.note("move", index, *(wanted or ()))
        self.world.lifecycle.attempt(
            AlterReassignments(
                reassignments=(Reassignment(topic=name, partition=index, replicas=wanted),)
            )
        )

    def elect(self) -> None:
        """Elect preferred leaders."""
        self.world.lifecycle.attempt(ElectLeaders())
