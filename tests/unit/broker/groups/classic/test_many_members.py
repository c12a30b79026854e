"""The cost of each step with a thousand members is linear, not quadratic."""

import pytest
from tests.kit.growth import grows_with_size

from .play import PROTOCOLS, Play, subscription

COUNT = 1_000


class Fast(Play):
    """A play without the checks over all members at every step."""

    def see(self, decision: object) -> None:
        for reply in decision.replies:  # type: ignore[attr-defined]
            self.outcomes[reply.ticket] = getattr(reply, "outcome", None)
        self.records += decision.records  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_thousand_members_join_and_rejoin() -> None:
    grows_with_size(join_twice_and_leave, COUNT)


def join_twice_and_leave(count: int) -> None:
    play = Fast()
    protocols = [(name, subscription("a", "b")) for name, _ in PROTOCOLS]
    reply = [play.joined(play.join(takes_id_first=True)).member_id for _ in range(count)]
    members = play.gather(*[play.join(name, protocols=protocols) for name in reply])
    play.settle(members)
    newcomer = play.join(protocols=protocols)
    tickets = [play.join(name, protocols=protocols) for name in reply]
    assert play.joined(newcomer).generation == 2
    play.settle([play.joined(ticket) for ticket in (*tickets, newcomer)])
    for name in reply:
        assert play.beat(name, 2) is None
        assert play.machine.deadline_ms() is not None
    assert play.machine.subscribed_topics() == frozenset({"a", "b"})
    play.leave(*reply)
    play.machine.check_invariants()
    assert len(play.machine.describe().members) == 1
