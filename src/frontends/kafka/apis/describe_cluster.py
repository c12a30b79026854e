"""DescribeCluster: return the cluster id, the brokers and the controller (KIP-700, KIP-919)."""

from typing import Final

from ..api import Answer, BrokerContext, Call, KafkaApi
from ..authorized_operations import cluster_operations
from ..endpoints import controller_of, endpoints
from ..error_codes import MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def describe_cluster(broker: BrokerContext, call: Call) -> Answer:
    """Describe the brokers. Controllers are not described: they have no Kafka listener."""
    body, asked = call.body, broker.hosted.node_id
    cluster = await broker.api.cluster.describe(call.context)
    kind = getattr(body, "endpoint_type", BROKERS)
    if kind != BROKERS:
        is_known = kind == CONTROLLERS
        return {
            "error_code": MISMATCHED_ENDPOINT_TYPE if is_known else UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"endpoint type {kind}: not served by brokers; give {BROKERS}",
            "endpoint_type": BROKERS,
            "cluster_id": cluster.cluster_id,
        }
    alive = endpoints(broker.image, call.client, asked=asked)
    brokers = alive
    if getattr(body, "include_fenced_brokers", False):
        brokers = endpoints(broker.image, call.client, asked=asked, with_fenced=True)
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": controller_of(alive, cluster.controller_id, asked),
        "brokers": [
            {
                "broker_id": each.node_id,
                "host": each.host,
                "port": each.port,
                "rack": each.rack,
                "is_fenced": each.is_fenced,
            }
            for each in brokers.values()
        ],
        "cluster_authorized_operations": cluster_operations(
            broker, call, is_asked=body.include_cluster_authorized_operations
        ),
    }


API: Final = KafkaApi(
    key=60, name="DescribeCluster", low=0, high=2, flexible=0, handle=describe_cluster
)
