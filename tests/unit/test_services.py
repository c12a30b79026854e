"""The list of remote calls agrees with the generated descriptors."""

from google.protobuf.descriptor import ServiceDescriptor

from quorumlog import services
from quorumlog.proto import (
    admin_pb2,
    auth_pb2,
    controller_pb2,
    groups_pb2,
    log_pb2,
    mirror_pb2,
    quorum_pb2,
    raft_pb2,
    replica_pb2,
    staged_commits_pb2,
    transaction_coordination_pb2,
    transactions_pb2,
)
from quorumlog.runtime import Method

FILES = (
    admin_pb2,
    auth_pb2,
    controller_pb2,
    groups_pb2,
    log_pb2,
    mirror_pb2,
    quorum_pb2,
    raft_pb2,
    replica_pb2,
    staged_commits_pb2,
    transaction_coordination_pb2,
    transactions_pb2,
)
NAMED = [value for value in vars(services).values() if isinstance(value, Method)]


def described() -> dict[str, ServiceDescriptor]:
    return {
        service.full_name: service
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
    }


def test_every_named_call_is_in_the_protocol_with_its_messages() -> None:
    assert len(NAMED) >= 12
    for method in NAMED:
        _, service_name, name = method.path.split("/")
        descriptor = described()[service_name].methods_by_name[name]
        assert descriptor.input_type is method.request.DESCRIPTOR, method.path
        assert descriptor.output_type is method.response.DESCRIPTOR, method.path
        streams = descriptor.client_streaming or descriptor.server_streaming
        assert streams == method.streaming, method.path


def test_names_of_calls_are_unique() -> None:
    paths = [method.path for method in NAMED]
    assert len(paths) == len(set(paths))


def test_services_of_the_protocol_are_the_documented_ones() -> None:
    assert sorted(name.split(".")[-1] for name in described()) == [
        "Admin",
        "Auth",
        "Controller",
        "Groups",
        "Log",
        "Mirror",
        "Quorum",
        "Raft",
        "Replica",
        "StagedCommits",
        "TransactionCoordination",
        "Transactions",
    ]
