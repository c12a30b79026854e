"""Feature levels are finalized only if every broker supports them."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import FeatureUpdateFailed, InvalidRequest
from quorumlog.ids import DirectoryId, NodeId
from quorumlog.metadata import (
    FEATURES,
    OWN_FEATURES,
    Decision,
    FeaturesUpdated,
    FeatureUpdate,
    MetadataImage,
    RegisterBroker,
    UpdateFeatures,
)
from quorumlog.metadata.decisions.features import (
    feature_levels,
    finalized_level,
    supported_levels,
)
from quorumlog.proto import metadata_records_pb2 as pb

NAME, TRANSACTIONS = "metadata.version", "transaction.version"


def update(
    cluster: Cluster, *updates: tuple[str, int], downgrade: bool = False, look: bool = False
) -> Decision:
    rows = tuple(
        FeatureUpdate(name=name, level=level, allow_downgrade=downgrade) for name, level in updates
    )
    return cluster.do(UpdateFeatures(updates=rows, validate_only=look))


def register(cluster: Cluster, node: int, *features: tuple[str, int, int]) -> None:
    cluster.do(
        RegisterBroker(
            broker_id=NodeId(node),
            incarnation_id=bytes([node]) * 16,
            directory_id=DirectoryId(bytes([node]) * 16),
            grpc_address="localhost:1",
            features=features,
        )
    )


def of_broker(cluster: Cluster, node: int, feature: tuple[str, int, int]) -> None:
    """Return a broker that registered under other feature levels."""
    name, low, high = feature
    supported = pb.SupportedFeature(name=name, level_min=low, level_max=high)
    record = pb.BrokerRecord(
        id=node, incarnation_id=bytes(16), directory_id=bytes(16), features=[supported]
    )
    cluster.replay((pb.MetadataRecord(broker=record),))


def finalized(cluster: Cluster, name: str, level: int) -> MetadataImage:
    record = pb.MetadataRecord(feature_level=pb.FeatureLevelRecord(name=name, level=level))
    cluster.replay((record,))
    return cluster.image


def test_a_new_cluster_has_the_default_levels(cluster: Cluster) -> None:
    row = FEATURES[NAME]
    assert row.doc.endswith(".")
    assert finalized_level(cluster.image, NAME) == row.default
    assert feature_levels(cluster.image) == [(NAME, 1, 1, 1), (TRANSACTIONS, 0, 0, 2)]
    assert OWN_FEATURES == ((NAME, 1, 1), (TRANSACTIONS, 0, 2))


def test_the_first_broker_of_a_cluster_finalizes_the_newest_transaction_version(
    cluster: Cluster,
) -> None:
    register(cluster, 1, *OWN_FEATURES)
    assert finalized_level(cluster.image, TRANSACTIONS) == 2
    update(cluster, (TRANSACTIONS, 0), downgrade=True)
    register(cluster, 2, *OWN_FEATURES)
    assert finalized_level(cluster.image, TRANSACTIONS) == 0


def test_a_cluster_of_an_older_release_keeps_its_transaction_version(cluster: Cluster) -> None:
    register(cluster, 1)
    register(cluster, 2, *OWN_FEATURES)
    assert finalized_level(cluster.image, TRANSACTIONS) == 0
    with pytest.raises(FeatureUpdateFailed, match=r"broker 1 supports transaction.version 0..0"):
        update(cluster, (TRANSACTIONS, 2))


def test_a_first_broker_that_does_not_support_a_level_leaves_it(cluster: Cluster) -> None:
    register(cluster, 1, (NAME, 1, 1), (TRANSACTIONS, 0, 1))
    assert finalized_level(cluster.image, TRANSACTIONS) == 0


def test_finalized_level_again_succeeds_without_a_change(cluster: Cluster) -> None:
    cluster.start(1)
    decision = update(cluster, (NAME, 1))
    assert decision.records == ()
    assert decision.reply == FeaturesUpdated(levels=((NAME, 1, 1, 1), (TRANSACTIONS, 0, 0, 0)))


@pytest.mark.parametrize(
    ("level", "downgrade", "why"),
    [
        (2, False, "the controller supports metadata.version 1..1, not 2"),
        (0, False, "a downgrade"),
        (0, True, "1..1, not 0"),
    ],
)
def test_levels_that_this_version_does_not_support_are_refused(
    cluster: Cluster, level: int, downgrade: bool, why: str
) -> None:
    with pytest.raises(FeatureUpdateFailed, match=why):
        update(cluster, (NAME, level), downgrade=downgrade)


def test_registered_broker_that_does_not_support_a_level_is_named(cluster: Cluster) -> None:
    """Also a fenced one: it would return to records that it cannot read."""
    of_broker(cluster, 4, (NAME, 2, 3))
    with pytest.raises(FeatureUpdateFailed, match=r"broker 4 supports metadata.version 2..3"):
        update(cluster, (NAME, 1))
    assert supported_levels(cluster.image, NAME) == (2, 1)


def test_broker_with_other_features_does_not_support_this_one(cluster: Cluster) -> None:
    of_broker(cluster, 4, ("other", 1, 1))
    with pytest.raises(FeatureUpdateFailed, match="broker 4"):
        update(cluster, (NAME, 1))


def test_broker_without_features_supports_the_first_level(cluster: Cluster) -> None:
    register(cluster, 4)
    assert supported_levels(cluster.image, NAME) == (1, 1)


def test_unknown_doubled_and_missing_features_are_refused(cluster: Cluster) -> None:
    with pytest.raises(FeatureUpdateFailed, match=r"did you mean metadata.version\?"):
        update(cluster, ("metadata.versoin", 1))
    with pytest.raises(InvalidRequest, match="more than once"):
        update(cluster, (NAME, 1), (NAME, 1))
    with pytest.raises(InvalidRequest, match="no changes"):
        update(cluster)


def test_finalized_level_applies(cluster: Cluster) -> None:
    image = finalized(cluster, NAME, 7)
    assert finalized_level(image, NAME) == 7
    with pytest.raises(FeatureUpdateFailed, match="level 7, and 1 is a downgrade"):
        update(cluster, (NAME, 1))
    looked = update(cluster, (NAME, 1), downgrade=True, look=True)
    assert looked.records == ()
    assert finalized_level(cluster.image, NAME) == 7
    update(cluster, (NAME, 1), downgrade=True)
    assert finalized_level(cluster.image, NAME) == 1


def test_broker_that_does_not_support_a_finalized_level_is_not_registered(
    cluster: Cluster,
) -> None:
    register(cluster, 1, *OWN_FEATURES)
    with pytest.raises(FeatureUpdateFailed, match=r"is 1, the broker supports 2..3"):
        register(cluster, 2, (NAME, 2, 3))
    finalized(cluster, "from.the.future", 3)
    with pytest.raises(FeatureUpdateFailed, match=r"from.the.future of the cluster is 3"):
        register(cluster, 3, *OWN_FEATURES)
    assert [broker.id for broker in cluster.image.sorted_brokers()] == [1]
