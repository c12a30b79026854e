"""Transcripts: commands to a quorum under step-by-step control, with their exact output.

A file is read from top to bottom. A line that begins with `> ` is a command; the lines below it, up
to the next command, a comment (`#`) or an empty line, are its expected output. README.md lists the
commands. `python -m tests.scenarios.transcript --rewrite [file ...]` writes the current output
instead; read and understand the difference before you commit it.
"""

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.kit.quorum import Quorum

from quorumlog.errors import QuorumlogError
from quorumlog.raftlog.messages import Message
from quorumlog.raftlog.ready import RoleChanged

from .words import (
    KINDS,
    entry_text,
    happening_text,
    kind_of,
    message_text,
    name,
    names,
    place,
    short,
)

FOLDER: Final = Path(__file__).parent / "raft"


class Script:
    """Runs commands in sequence; each returns its output lines."""

    def __init__(self) -> None:
        self.quorum = Quorum(())
        self.lines: list[str] = []
        self.quiet = False  # print only roles
        self.silent = False  # print nothing

    def run(self, command: str) -> list[str]:
        """Return the lines that one command prints; a typed error is one of them."""
        self.lines = []
        word, *arguments = command.split()
        action: Callable[..., None] | None = getattr(self, f"do_{word.replace('-', '_')}", None)
        if action is None:
            raise ValueError(f"no command {word!r}; there are {', '.join(commands())}")
        try:
            action(*arguments)
        except QuorumlogError as error:
            self.lines.append(f"{type(error).__name__}: {error}")
        return self.lines

    # --- output --------------------------------------------------------------------------------

    def say(self, node_id: int, text: str) -> None:
        self.lines.append(f"{node_id}: {text}")

    def _sent(self, node_id: int, message: Message) -> None:
        if self.quiet:
            return
        to = self.quorum.target(message)
        lost = " (cut)" if (node_id, to) in self.quorum.cut else ""
        self.lines.append(f"{node_id} -> {to} {message_text(message)}{lost}")

    def _happened(self, node_id: int, what: object) -> None:
        text = happening_text(what)
        if not self.silent and (not self.quiet or isinstance(what, RoleChanged)):
            self.say(node_id, text)

    # --- members -------------------------------------------------------------------------------

    def do_nodes(self, count: str, *options: str) -> None:
        """`nodes 3 [field=value ...]`: create voters 1 to 3 with empty logs; fields of
        RaftConfig."""
        fields = dict(option.split("=") for option in options)
        numbers = {field: int(value) for field, value in fields.items()}
        self.quorum = Quorum(range(1, int(count) + 1), **numbers)
        self.quorum.sent, self.quorum.happened = self._sent, self._happened

    def do_observer(self, node_id: str) -> None:
        """`observer 4`: start a node without a vote, which fetches from the leader."""
        self.quorum.observer(int(node_id))

    def do_disk(self, node_id: str, *epochs: str) -> None:
        """`disk 2 1x3 4`: stop the node, and give it a log of three entries of epoch 1 and one of
        epoch 4; `v6` is the one at offset 6."""
        found: list[int] = []
        for word in epochs:
            epoch, _, count = word.partition("x")
            found += [int(epoch)] * int(count or 1)
        self.quorum.prepare(int(node_id), found)

    def do_crash(self, node_id: str, when: str = "") -> None:
        """`crash 2 [hard_state | truncate]`: kill the node, with its pending write lost, or
        completed up to that part."""
        if when:
            assert when in ("hard_state", "truncate"), when
            assert self.quorum.persist(int(node_id), only=when), "no write is pending"
        self.quorum.crash(int(node_id))

    def do_restart(self, node_id: str) -> None:
        """`restart 2`: start the node again with its disk."""
        self.quorum.restart(int(node_id))

    def do_wipe(self, node_id: str) -> None:
        """`wipe 2`: start the node with an empty disk, which has another id."""
        self.quorum.wipe(int(node_id))

    # --- time ----------------------------------------------------------------------------------

    def do_tick(self, ms: str, *node_ids: str) -> None:
        """`tick 100 [1 2]`: advance the clocks of the nodes, or of all, by so many milliseconds."""
        self.quorum.tick(int(ms), *map(int, node_ids))

    def do_run(self, ms: str) -> None:
        """`run 3000`: advance all clocks by so many milliseconds, with all writes and messages
        completed."""
        self.quorum.run(int(ms))

    def do_campaign(self, node_id: str) -> None:
        """`campaign 1`: advance its clock until its election timeout expires."""
        self.quorum.campaign(int(node_id))

    def do_lead(self, node_id: str) -> None:
        """`lead 1`: it campaigns with the votes of all; only the end is printed."""
        self.quiet, before, self.silent = True, self.quiet, True
        self.quorum.elect(int(node_id))
        self.quiet, self.silent = before, False
        self.say(int(node_id), f"leads epoch {self.quorum[int(node_id)].epoch}")

    def do_extra(self, node_id: str, ms: str) -> None:
        """`extra 2 500`: set its next election timeouts to the minimum plus this value."""
        self.quorum.members[int(node_id)].entropy.extra_ms = int(ms)

    # --- requests ------------------------------------------------------------------------------

    def do_propose(self, node_id: str, value: str, count: str = "1") -> None:
        """`propose 1 abc [count]`: propose a value; `big*100` repeats the word to make bytes."""
        word, _, times = value.partition("*")
        self.quorum.propose(int(node_id), word * int(times or 1), count=int(count))

    def do_read(self, node_id: str, context: str) -> None:
        """`read 1 7`: request a linearizable read, named 7."""
        self.quorum.read(int(node_id), int(context))

    def do_add_voter(self, leader: str, added: str) -> None:
        """`add-voter 1 4`: let the first node add the second as a voter."""
        self.quorum.add_voter(int(leader), int(added))

    def do_remove_voter(self, leader: str, removed: str) -> None:
        """`remove-voter 1 3`"""
        self.quorum.remove_voter(int(leader), int(removed))

    def do_transfer(self, leader: str, to: str = "") -> None:
        """`transfer 1 [2]`: let the first node transfer its leadership."""
        self.quorum.transfer(int(leader), int(to) if to else None)

    def do_resign(self, node_id: str) -> None:
        """`resign 1`: stop the node in order."""
        self.quorum.resign(int(node_id))

    def do_snapshot(self, node_id: str) -> None:
        """`snapshot 1`: write a snapshot of all applied entries."""
        taken = self.quorum.snapshot(int(node_id))
        self.say(int(node_id), f"has snapshot {place(taken.log_end)}")

    def do_damage(self, node_id: str) -> None:
        """`damage 2 `: make the next snapshots that it receives invalid; again: valid."""
        member = self.quorum.members[int(node_id)]
        member.refuses_snapshots = not member.refuses_snapshots

    # --- disks and network ---------------------------------------------------------------------

    def do_persist(self, *node_ids: str) -> None:
        """`persist 1 2`: complete the pending write of each node or of all."""
        for node_id in map(int, node_ids or [str(n) for n, _ in self.quorum.running()]):
            done = self.quorum.persist(node_id)
            if node_ids and not done:
                self.say(node_id, "has nothing to write")

    def do_deliver(self, *where: str) -> None:
        """`deliver [1 -> 2] [kind] [last]`: deliver the messages in flight now, in order; `last`:
        only the newest."""
        for message in self._chosen(where):
            if not self.quorum.deliver(message):
                self.say(self.quorum.target(message), f"is not there: {kind_of(message)} is lost")

    def do_repeat(self, *where: str) -> None:
        """`repeat [1 -> 2] [kind]`: deliver the messages and keep them in flight."""
        for message in self._chosen(where):
            self.quorum.flying.append(message)
            self.quorum.deliver(message)

    def do_drop(self, *where: str) -> None:
        """`drop [1 -> 2] [kind] [last]`: lose the messages."""
        for message in self._chosen(where):
            self.quorum.flying.remove(message)

    def do_settle(self) -> None:
        """`settle`: persist and deliver until nothing is pending, without advancing the clocks."""
        self.quorum.settle()

    def do_cut(self, left: str, arrow: str, right: str) -> None:
        """`cut 1 -> 2`: lose messages in this direction from now on; `cut 1 - 2`: in both."""
        pair = (int(left), int(right))
        self.quorum.cut |= {pair} if arrow == "->" else {pair, pair[::-1]}

    def do_isolate(self, node_id: str) -> None:
        """`isolate 1`: lose all messages to and from the node from now on."""
        self.quorum.isolate(int(node_id))

    def do_heal(self) -> None:
        """`heal`: all links work."""
        self.quorum.heal()

    def do_unreachable(self, node_id: str, peer: str) -> None:
        """`unreachable 1 2`: report to the first node that its stream to the second broke."""
        self.quorum.unreachable(int(node_id), int(peer))

    def _chosen(self, where: tuple[str, ...]) -> list[Message]:
        """Return the messages in flight that the words select. Raise an error if there are none."""
        words = list(where)
        newest = "last" in words
        if newest:
            words.remove("last")
        kinds = [word for word in words if word in KINDS]
        ends = [int(word) for word in words if word not in KINDS and word != "->"]
        if len(ends) not in (0, 2) or len(kinds) > 1:
            raise ValueError(f"which messages are {' '.join(where)!r}?")
        found = [
            message
            for message in self.quorum.flying
            if (not kinds or kind_of(message) == kinds[0])
            and (not ends or self._ends(message) == tuple(ends))
        ]
        if where and not found:
            raise ValueError(f"nothing in flight is {' '.join(where)!r}")
        return found[-1:] if newest else found

    def _ends(self, message: Message) -> tuple[int, int]:
        return message.sender.node_id, self.quorum.target(message)

    # --- queries -------------------------------------------------------------------------------

    def do_quiet(self) -> None:
        """`quiet`: print only roles from now on."""
        self.quiet = True

    def do_loud(self) -> None:
        """`loud`: print everything again."""
        self.quiet = False

    def do_state(self, *node_ids: str) -> None:
        """`state [1 2]`: print role, vote, log, high watermark and voters, of each or of all."""
        for node_id in map(int, node_ids or map(str, sorted(self.quorum.members))):
            member = self.quorum.members[node_id]
            if member.core is None:
                self.say(node_id, "is not running")
                continue
            state = member.raft_state
            self.say(
                node_id,
                f"{member.raft.role.name} epoch {state.epoch} vote {name(state.vote)} leader"
                f" {name(state.leader)} log [{state.log.start_offset}, {place(state.log.end)})"
                f" durable {member.disk.end_offset} hw {state.high_watermark}"
                f" voters {names(state.voters.latest)}",
            )

    def do_log(self, *node_ids: str) -> None:
        """`log [1 2]`: print the entries and the applied values; a star: not durable there yet."""
        for node_id in map(int, node_ids or [str(n) for n, _ in self.quorum.running()]):
            member = self.quorum.members[node_id]
            log = member.raft_state.log
            entries = member.entries(log.start_offset, log.end_offset)
            durable = set(member.disk.entries)
            text = ", ".join(
                entry_text(entry) + ("" if entry in durable else "*") for entry in entries
            )
            state = " ".join(map(short, member.state))
            start = f"from {place(log.start)}: " if log.start_offset else ""
            self.say(node_id, f"{start}{text or 'empty'} | {state or 'nothing'}")

    def do_flying(self) -> None:
        """`flying`: print the messages in flight, oldest first."""
        for message in self.quorum.flying:
            sender, target = self._ends(message)
            self.lines.append(f"{sender} -> {target} {message_text(message)}")


def commands() -> list[str]:
    """Return the names of all commands."""
    found = (each.removeprefix("do_") for each in dir(Script) if each.startswith("do_"))
    return sorted(each.replace("_", "-") for each in found)


def replay(text: str) -> str:
    """Return the transcript with the current output of its commands."""
    script, written = Script(), []
    printing = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("> "):
            written.append(line)
            try:
                written += script.run(line.removeprefix("> "))
            except Exception as error:
                error.add_note(f"line {number}: {line}")
                raise
            printing = True
        elif line.startswith("#") or not line.strip():
            written.append(line)
            printing = False
        elif not printing:
            raise ValueError(f"line {number} is no command, no comment and no output: {line}")
    return "\n".join(written) + "\n"


def difference(path: Path) -> str:
    """Return the difference between a transcript and the current output, as a unified diff; empty:
    none."""
    expected = path.read_text()
    lines = difflib.unified_diff(
        expected.splitlines(),
        replay(expected).splitlines(),
        fromfile=f"{path.name} as written",
        tofile="as it is today",
        lineterm="",
        n=4,
    )
    return "\n".join(lines)


def transcripts() -> list[Path]:
    """Return every transcript of the folder."""
    return sorted(FOLDER.glob("*.txt"))


def main() -> int:
    """Compare the transcripts, or rewrite them with --rewrite; return 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rewrite", action="store_true", help="write down what is printed today")
    arguments = parser.parse_args()
    differs = 0
    for path in arguments.files or transcripts():
        if arguments.rewrite:
            path.write_text(replay(path.read_text()))
        elif text := difference(path):
            print(text)
            differs = 1
    return differs


if __name__ == "__main__":
    sys.exit(main())
