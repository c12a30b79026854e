"""A run in plain words: one line for each event, with the state that it changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..levels.core.trace import Crashed, Delivered, Sent, Started, StateChanged, TraceEvent
from .plan import PlannedEvent

if TYPE_CHECKING:
    from ..levels.core.member import CoreMember
    from ..levels.partitions.world import PartitionWorld

Facts = Mapping[str, Mapping[str, str]]
"""The state of each node by the name of a fact."""

CORE_PHRASES: Final = {
    "deliver": "{receiver} receives {rest} from {sender}",
    "unreachable": "the stream from {sender} to {receiver} breaks",
    "tick": "the timer of {node} fires",
    "turn": "{node} executes the effects of several inputs",
    "step_done": "{node} completes a step of a write",
    "read": "{node} reads entries to send",
    "apply": "{node} applies committed entries",
    "release": "{node} sends the messages that waited for a write",
    "snapshot_done": "{node} stores a snapshot",
    "start": "{node} starts again",
    "heal": "all links work again",
}
CORE_ACTIONS: Final = {
    "propose": "a client proposes records",
    "read": "a client requests a linearizable read",
    "change_voters": "an operator changes the voters",
    "transfer": "an operator transfers the leadership",
    "resign": "an operator stops a leader cleanly",
    "crash_one": "fault: a process is to crash",
    "pause": "fault: a process is paused",
    "jump": "fault: a clock jumps ahead",
    "clog": "fault: a link delays its messages",
    "partition": "fault: links are cut",
}
PARTITIONS_PHRASES: Final = {
    "serve": "{sender} serves a fetch of {receiver} for {rest}",
    "answered": "{receiver} receives the response of {sender} for {rest}",
    "fetch_again": "{receiver} repeats a fetch from {sender} for {rest}",
    "fetch": "{node} fetches {rest}",
    "append": "a client appends a record",
    "apply": "{node} applies metadata",
    "register": "{node} registers",
    "unfence": "{node} is unfenced",
    "fence": "the controller fences {node}",
    "back": "{node} starts again",
    "flushed": "{node} completes a flush of {rest}",
    "decide_isr": "the controller decides ISR changes of {node}",
    "isr_answered": "{node} receives the reply to its ISR changes",
    "ask_awake": "{node} checks its ISR changes",
    "check_isr": "{node} checks for lagging followers",
    "kill_scheduled": "fault: {node} is killed",
    "stopped": "{node} ends after a clean stop",
    "unfence_after_pause": "{node} is unfenced after its pause",
}
PARTITIONS_ACTIONS: Final = {
    "crash": "fault: a process is killed",
    "cut_power": "fault: a machine loses power",
    "kill_replicas": "fault: replicas of one partition are to be killed",
    "stop": "an operator stops a broker cleanly",
    "pause": "fault: a process is paused",
    "move": "an operator reassigns a partition",
    "elect": "an operator elects the preferred replicas",
    "wipe": "fault: a disk is replaced",
    "delete_records": "a client deletes records",
}
FETCH_MESSAGES: Final = {"serve": "fetch", "answered": "fetch response"}
WORLD_RECORDS: Final = {
    "start": "its process starts",
    "crash": "its process is killed",
    "power-cut": "its power is cut",
    "pause": "its process is paused",
    "resume": "its process resumes",
    "exit": "its process ends",
    "stop-node": "it stops itself",
}
"""The events of a `SimWorld` that a story shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryLine:
    """An event in words."""

    at_us: int
    text: str
    changes: tuple[str, ...] = ()  # of the nodes' states


class _EventStory:
    """The lines of a run with every event in its plan."""

    def __init__(self, phrases: Mapping[str, str], actions: Mapping[str, str]) -> None:
        self.lines: list[StoryLine] = []
        self._phrases = phrases
        self._actions = actions
        self._facts: Facts = {}

    def observe(self, event: PlannedEvent) -> None:
        """Add the line of an event that was executed."""
        facts = self.facts()
        changes = tuple(changed_facts(self._facts, facts))
        self._facts = facts
        text = phrase_of(event.key, self._phrases, self._actions)
        self.lines.append(StoryLine(at_us=event.at_us, text=text, changes=changes))

    def facts(self) -> Facts:
        """Return the state of all nodes."""
        raise NotImplementedError


class CoreStory(_EventStory):
    """The story of a run of level `core`."""

    members: "list[CoreMember]"

    def __init__(self) -> None:
        super().__init__(CORE_PHRASES, CORE_ACTIONS)

    def facts(self) -> Facts:
        """Return the state of all members."""
        return {member.name: self._facts_of(member) for member in self.members}

    @staticmethod
    def _facts_of(member: "CoreMember") -> dict[str, str]:
        disk = member.disk
        found = {
            "": "down",
            "on disk": f"[{disk.log.start.offset}, {disk.log.end})",
            "vote on disk": f"{_vote(disk.hard_state.vote)} in epoch {disk.hard_state.epoch}",
        }
        if member.raft is not None:
            log, voters = member.state.log, member.state.voters.latest
            found[""] = f"{member.raft.role.name.replace('_', '-')} of epoch {member.state.epoch}"
            found["log"] = f"[{log.start.offset}, {log.end_offset})"
            found["committed"] = f"{member.state.high_watermark}"
            found["voters"] = f"{[voter.node_id for voter in voters]}"
        return found


def _vote(vote: object) -> str:
    return "none" if vote is None else f"node {getattr(vote, 'node_id', vote)}"


class PartitionsStory(_EventStory):
    """The story of a run of level `partitions`."""

    world: "PartitionWorld"

    def __init__(self) -> None:
        super().__init__(PARTITIONS_PHRASES, PARTITIONS_ACTIONS)
        self.trace: list[TraceEvent] = []

    def observe(self, event: PlannedEvent) -> None:
        """Add the line of an event that was executed, and its shapes in the timeline."""
        super().observe(event)
        line = self.lines[-1]
        for node, broker in self.world.brokers.items():
            changed = [one for one in line.changes if one.startswith(f"n{node}: ")]
            if not changed:
                continue
            text = changed[0].partition(": ")[2]
            band = "down" if not broker.is_alive else "leader" if broker.led else "follower"
            self.trace.append(StateChanged(at_us=line.at_us, node=node, text=text, band=band))
        verb = event.key.partition(" ")[0]
        if verb not in FETCH_MESSAGES:
            return
        leader, follower, rest = _link(event.key)
        ends = (follower, leader) if verb == "serve" else (leader, follower)
        number = len(self.lines)
        self.trace.append(
            Sent(
                at_us=line.at_us,
                number=number,
                sender=int(ends[0][1:]),
                receiver=int(ends[1][1:]),
                message=FETCH_MESSAGES[verb],
                detail=rest,
                epoch=-1,
            )
        )
        self.trace.append(Delivered(at_us=line.at_us, number=number))

    def facts(self) -> Facts:
        """Return the state of all brokers."""
        found: dict[str, dict[str, str]] = {}
        for node, broker in self.world.brokers.items():
            facts = found[f"n{node}"] = {"": "runs" if broker.is_alive else "down"}
            for (topic_id, index), partition in broker.replicas.items():
                log = broker.disk.log((topic_id, index))
                role = "leader" if partition.is_leader else "follower"
                facts[f"topic-{topic_id[0] - 1}-{index}"] = (
                    f"{role} of epoch {partition.leader_epoch}, log [{log.start}, {log.end}),"
                    f" committed {partition.high_watermark}"
                )
        for (topic_id, index), state in self.world.partitions():
            isr = ", ".join(map(str, state.isr))
            elr = f", ELR {', '.join(map(str, state.elr))}" if state.elr else ""
            name = f"topic-{topic_id[0] - 1}-{index}"
            leader = f"leader {state.leader} of epoch {state.leader_epoch}"
            found.setdefault("controller", {})[name] = f"{leader}, ISR {isr}{elr}"
        return found


class WorldStory:
    """The story of a run on `SimWorld`: its faults, and the processes that start and end."""

    def __init__(self) -> None:
        self.lines: list[StoryLine] = []
        self.trace: list[TraceEvent] = []
        self.nodes: list[str] = []

    def observe(self, event: PlannedEvent) -> None:
        """Add the line of an injected fault, before its effects."""
        kind, _, name = event.key.partition(" ")
        text = f"fault: {name}" if kind in ("fault", "coordinator") else event.key
        self.lines.append(StoryLine(at_us=event.at_us, text=text))

    def take_line(self, line: str) -> None:
        """Add the line of an event of the world, if a story shows it."""
        at_ns, process, what, *_ = line.split(" ", 3)
        words = WORLD_RECORDS.get(what)
        if words is None:
            return
        name = process.partition("/")[0]
        at_us = int(at_ns) // 1000
        self.lines.append(StoryLine(at_us=at_us, text=f"{name}: {words}"))
        if name not in self.nodes:
            self.nodes.append(name)
        node = self.nodes.index(name) + 1
        match what:
            case "start":
                self.trace.append(Started(at_us=at_us, node=node))
            case "pause" | "resume":
                band = "idle" if what == "pause" else "unattached"
                self.trace.append(StateChanged(at_us=at_us, node=node, text=what, band=band))
            case _:
                self.trace.append(Crashed(at_us=at_us, node=node))

    def finish(self) -> None:
        """Put the lines in the order of their times."""
        self.lines.sort(key=lambda line: line.at_us)


def phrase_of(key: str, phrases: Mapping[str, str], actions: Mapping[str, str]) -> str:
    """Return an event in words."""
    verb, _, rest = key.partition(" ")
    if verb == "happen":
        return actions.get(rest, rest.replace("_", " "))
    phrase = phrases.get(verb)
    if phrase is None:
        return key.replace("_", " ")
    sender, receiver, words = _link(key)
    node = next((word for word in rest.split() if word.startswith("n")), "")
    return phrase.format(sender=sender, receiver=receiver, rest=words, node=node).rstrip()


def _link(key: str) -> tuple[str, str, str]:
    """Return the ends of the link in a key and the words after it, empty without a link.

    A fetch n1>n2 is a request of the follower n1 to the leader n2; its response has the same key.
    """
    verb, *words = key.split(" ")
    number = next((index for index, word in enumerate(words) if ">" in word), -1)
    if number < 0:
        return "", "", " ".join(word for word in words if not word.startswith("n"))
    one, _, other = words[number].partition(">")
    if verb in ("serve", "answered", "fetch_again"):
        one, other = other, one
    return one, other, " ".join(words[number + 1 :])


def changed_facts(before: Facts, after: Facts) -> list[str]:
    """Return the facts of each node that differ, one text a node."""
    found = []
    for node, facts in after.items():
        known = before.get(node, {})
        changes = [
            f"{name} {value}".lstrip() for name, value in facts.items() if known.get(name) != value
        ]
        if changes:
            found.append(f"{node}: {', '.join(changes)}")
    return found


def text_of(lines: Sequence[StoryLine], *, rule: str, detail: str) -> str:
    """Return a story as numbered lines with the virtual time, and the violation at its end."""
    shown = []
    for number, line in enumerate(lines, start=1):
        shown.append(f"{number:>4}  {line.at_us / 1000:>11.3f} ms  {line.text}")
        shown += [f"{'':>22}{change}" for change in line.changes]
    shown.append(f"violated: {rule}\n  {detail}")
    return "\n".join(shown)
