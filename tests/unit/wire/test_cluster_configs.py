"""Configs of the whole cluster, by raw calls."""

from quorumlog import simulation
from quorumlog.metadata.cluster_configs import CLUSTER_CONFIGS
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_DESCRIBE_CONFIGS

from .served_node import WAIT_MS, serving


def test_every_config_of_the_cluster_is_described(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            request = pb.DescribeConfigsRequest(resources=[pb.ConfigResource(cluster=True)])
            answer = await channel.call(ADMIN_DESCRIBE_CONFIGS, request, timeout_ms=WAIT_MS)
            (result,) = answer.results
            assert result.resource.cluster
            assert [entry.name for entry in result.configs] == list(CLUSTER_CONFIGS)
            for entry in result.configs:
                assert entry.value == entry.default_value == CLUSTER_CONFIGS[entry.name].default
                assert entry.source == pb.CONFIG_SOURCE_DEFAULT
                assert entry.doc
                assert entry.changes

    simulation.run(main)
