"""Classic members of the simulation assign partitions like real clients."""

from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.levels.groups.classic_member import share_out

from quorumlog.broker.groups.consumer_protocol import ConsumerSubscription
from quorumlog.testing.checkers import Place

PLACES: list[Place] = [("t", index) for index in range(7)]


def wants(*owned: int, generation: int = 1) -> ConsumerSubscription:
    return ConsumerSubscription(
        version=2, topics=("t",), owned={"t": owned} if owned else {}, generation=generation
    )


def test_members_without_owned_partitions_get_even_shares() -> None:
    shares = share_out({"a": wants(), "b": wants(), "c": wants()}, PLACES, keeps=False)
    assert sorted(place for some in shares.values() for place in some) == PLACES
    assert sorted(map(len, shares.values())) == [2, 2, 3]


def test_no_member_gets_a_partition_that_another_one_owns() -> None:
    shares = share_out({"a": wants(*range(7)), "b": wants()}, PLACES, keeps=True)
    assert len(shares["a"]) == 4
    assert shares["b"] == []


def test_partition_claimed_twice_belongs_to_the_later_generation() -> None:
    shares = share_out(
        {"a": wants(0, generation=1), "b": wants(0, generation=2)}, PLACES[:1], keeps=True
    )
    assert shares == {"a": [], "b": PLACES[:1]}


@given(st.lists(st.sampled_from("abcd-"), min_size=7, max_size=7))
def test_repeated_assignment_converges_and_moves_no_partition_early(
    owners: list[str],
) -> None:
    owned: dict[str, set[int]] = {name: set() for name in "abcd"}
    for index, name in enumerate(owners):
        if name in owned:
            owned[name].add(index)
    for _ in range(3):
        shares = share_out({name: wants(*had) for name, had in owned.items()}, PLACES, keeps=True)
        for name, places in shares.items():
            for _, index in places:
                assert not any(index in owned[other] for other in owned if other != name)
        owned = {name: {index for _, index in places} for name, places in shares.items()}
    assert sorted(index for had in owned.values() for index in had) == list(range(7))
    assert sorted(map(len, owned.values())) == [1, 2, 2, 2]
