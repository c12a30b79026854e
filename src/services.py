"""Every remote call by name: its path and message types, shared by servers and clients.

Derived from proto/quorumlog/v1; a test compares the list with the generated descriptors.
"""

from .proto import (
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
from .runtime import RECORDS_BYTES_MAX, Method

LOG_PRODUCE = Method(
    "/quorumlog.v1.Log/Produce",
    log_pb2.ProduceRequest,
    log_pb2.ProduceResponse,
    streaming=True,
    request_bytes_max=RECORDS_BYTES_MAX,
)
LOG_PUBLISH = Method(
    "/quorumlog.v1.Log/Publish",
    log_pb2.PublishRequest,
    log_pb2.PublishResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
LOG_FETCH = Method("/quorumlog.v1.Log/Fetch", log_pb2.FetchRequest, log_pb2.FetchResponse)
LOG_SUBSCRIBE = Method(
    "/quorumlog.v1.Log/Subscribe",
    log_pb2.SubscribeRequest,
    log_pb2.SubscribeResponse,
    streaming=True,
)
LOG_LIST_OFFSETS = Method(
    "/quorumlog.v1.Log/ListOffsets", log_pb2.ListOffsetsRequest, log_pb2.ListOffsetsResponse
)

TRANSACTIONS_INIT_PRODUCER_ID = Method(
    "/quorumlog.v1.Transactions/InitProducerId",
    transactions_pb2.InitProducerIdRequest,
    transactions_pb2.InitProducerIdResponse,
)
TRANSACTIONS_ADD_PARTITIONS = Method(
    "/quorumlog.v1.Transactions/AddPartitions",
    transactions_pb2.AddPartitionsRequest,
    transactions_pb2.AddPartitionsResponse,
)
TRANSACTIONS_ADD_OFFSETS = Method(
    "/quorumlog.v1.Transactions/AddOffsets",
    transactions_pb2.AddOffsetsRequest,
    transactions_pb2.AddOffsetsResponse,
)
TRANSACTIONS_END = Method(
    "/quorumlog.v1.Transactions/EndTransaction",
    transactions_pb2.EndTransactionRequest,
    transactions_pb2.EndTransactionResponse,
)
TRANSACTIONS_LIST = Method(
    "/quorumlog.v1.Transactions/ListTransactions",
    transactions_pb2.ListTransactionsRequest,
    transactions_pb2.ListTransactionsResponse,
)
TRANSACTIONS_DESCRIBE = Method(
    "/quorumlog.v1.Transactions/DescribeTransactions",
    transactions_pb2.DescribeTransactionsRequest,
    transactions_pb2.DescribeTransactionsResponse,
)
TRANSACTIONS_DESCRIBE_PRODUCERS = Method(
    "/quorumlog.v1.Transactions/DescribeProducers",
    transactions_pb2.DescribeProducersRequest,
    transactions_pb2.DescribeProducersResponse,
)
TRANSACTIONS_ABORT_HANGING = Method(
    "/quorumlog.v1.Transactions/AbortHangingTransaction",
    transactions_pb2.AbortHangingTransactionRequest,
    transactions_pb2.AbortHangingTransactionResponse,
)
TRANSACTIONS_ABORT = Method(
    "/quorumlog.v1.Transactions/AbortTransaction",
    transactions_pb2.AbortTransactionRequest,
    transactions_pb2.AbortTransactionResponse,
)

STAGED_COMMITS_OPEN_WRITE = Method(
    "/quorumlog.v1.StagedCommits/OpenWrite",
    staged_commits_pb2.OpenWriteRequest,
    staged_commits_pb2.OpenWriteResponse,
)
STAGED_COMMITS_BEGIN = Method(
    "/quorumlog.v1.StagedCommits/Begin",
    staged_commits_pb2.BeginAttemptRequest,
    staged_commits_pb2.BeginAttemptResponse,
)
STAGED_COMMITS_KEEP_ALIVE = Method(
    "/quorumlog.v1.StagedCommits/KeepAlive",
    staged_commits_pb2.KeepAttemptAliveRequest,
    staged_commits_pb2.KeepAttemptAliveResponse,
)
STAGED_COMMITS_ADD_PARTITIONS = Method(
    "/quorumlog.v1.StagedCommits/AddPartitions",
    transactions_pb2.AddPartitionsRequest,
    transactions_pb2.AddPartitionsResponse,
)
STAGED_COMMITS_SEAL = Method(
    "/quorumlog.v1.StagedCommits/Seal",
    staged_commits_pb2.SealAttemptRequest,
    staged_commits_pb2.SealAttemptResponse,
)
STAGED_COMMITS_COMMIT = Method(
    "/quorumlog.v1.StagedCommits/Commit",
    staged_commits_pb2.CommitStageRequest,
    staged_commits_pb2.CommitStageResponse,
)
STAGED_COMMITS_ABORT = Method(
    "/quorumlog.v1.StagedCommits/Abort",
    staged_commits_pb2.AbortStageRequest,
    staged_commits_pb2.AbortStageResponse,
)
STAGED_COMMITS_LIST = Method(
    "/quorumlog.v1.StagedCommits/List",
    staged_commits_pb2.ListStagesRequest,
    staged_commits_pb2.ListStagesResponse,
)
STAGED_COMMITS_DESCRIBE = Method(
    "/quorumlog.v1.StagedCommits/Describe",
    staged_commits_pb2.DescribeStageRequest,
    staged_commits_pb2.DescribeStageResponse,
)
STAGED_COMMITS_RESET = Method(
    "/quorumlog.v1.StagedCommits/Reset",
    staged_commits_pb2.ResetStageRequest,
    staged_commits_pb2.ResetStageResponse,
)
STAGED_COMMITS_DELETE = Method(
    "/quorumlog.v1.StagedCommits/Delete",
    staged_commits_pb2.DeleteStageRequest,
    staged_commits_pb2.DeleteStageResponse,
)

GROUPS_HEARTBEAT = Method(
    "/quorumlog.v1.Groups/Heartbeat",
    groups_pb2.GroupHeartbeatRequest,
    groups_pb2.GroupHeartbeatResponse,
)
GROUPS_COMMIT_OFFSETS = Method(
    "/quorumlog.v1.Groups/CommitOffsets",
    groups_pb2.CommitOffsetsRequest,
    groups_pb2.CommitOffsetsResponse,
)
GROUPS_FETCH_OFFSETS = Method(
    "/quorumlog.v1.Groups/FetchOffsets",
    groups_pb2.FetchOffsetsRequest,
    groups_pb2.FetchOffsetsResponse,
)
GROUPS_DELETE_OFFSETS = Method(
    "/quorumlog.v1.Groups/DeleteOffsets",
    groups_pb2.DeleteOffsetsRequest,
    groups_pb2.DeleteOffsetsResponse,
)
GROUPS_LIST = Method(
    "/quorumlog.v1.Groups/ListGroups",
    groups_pb2.ListGroupsRequest,
    groups_pb2.ListGroupsResponse,
)
GROUPS_DESCRIBE = Method(
    "/quorumlog.v1.Groups/DescribeGroups",
    groups_pb2.DescribeGroupsRequest,
    groups_pb2.DescribeGroupsResponse,
)
GROUPS_DELETE = Method(
    "/quorumlog.v1.Groups/DeleteGroups",
    groups_pb2.DeleteGroupsRequest,
    groups_pb2.DeleteGroupsResponse,
)

ADMIN_DESCRIBE_CLUSTER = Method(
    "/quorumlog.v1.Admin/DescribeCluster",
    admin_pb2.DescribeClusterRequest,
    admin_pb2.DescribeClusterResponse,
)
ADMIN_CREATE_TOPIC = Method(
    "/quorumlog.v1.Admin/CreateTopic", admin_pb2.CreateTopicRequest, admin_pb2.CreateTopicResponse
)
ADMIN_LIST_TOPICS = Method(
    "/quorumlog.v1.Admin/ListTopics", admin_pb2.ListTopicsRequest, admin_pb2.ListTopicsResponse
)
ADMIN_DESCRIBE_TOPICS = Method(
    "/quorumlog.v1.Admin/DescribeTopics",
    admin_pb2.DescribeTopicsRequest,
    admin_pb2.DescribeTopicsResponse,
)
ADMIN_DELETE_TOPIC = Method(
    "/quorumlog.v1.Admin/DeleteTopic", admin_pb2.DeleteTopicRequest, admin_pb2.DeleteTopicResponse
)
ADMIN_DESCRIBE_CONFIGS = Method(
    "/quorumlog.v1.Admin/DescribeConfigs",
    admin_pb2.DescribeConfigsRequest,
    admin_pb2.DescribeConfigsResponse,
)
ADMIN_ALTER_CONFIGS = Method(
    "/quorumlog.v1.Admin/AlterConfigs",
    admin_pb2.AlterConfigsRequest,
    admin_pb2.AlterConfigsResponse,
)
ADMIN_DESCRIBE_LOG_DIRS = Method(
    "/quorumlog.v1.Admin/DescribeLogDirs",
    admin_pb2.DescribeLogDirsRequest,
    admin_pb2.DescribeLogDirsResponse,
)
ADMIN_DELETE_RECORDS = Method(
    "/quorumlog.v1.Admin/DeleteRecords",
    admin_pb2.DeleteRecordsRequest,
    admin_pb2.DeleteRecordsResponse,
)
ADMIN_CREATE_PARTITIONS = Method(
    "/quorumlog.v1.Admin/CreatePartitions",
    admin_pb2.CreatePartitionsRequest,
    admin_pb2.CreatePartitionsResponse,
)
ADMIN_ALTER_REASSIGNMENTS = Method(
    "/quorumlog.v1.Admin/AlterReassignments",
    admin_pb2.AlterReassignmentsRequest,
    admin_pb2.AlterReassignmentsResponse,
)
ADMIN_LIST_REASSIGNMENTS = Method(
    "/quorumlog.v1.Admin/ListReassignments",
    admin_pb2.ListReassignmentsRequest,
    admin_pb2.ListReassignmentsResponse,
)
ADMIN_ELECT_LEADERS = Method(
    "/quorumlog.v1.Admin/ElectLeaders",
    admin_pb2.ElectLeadersRequest,
    admin_pb2.ElectLeadersResponse,
)
ADMIN_ALTER_CLUSTER_CONFIGS = Method(
    "/quorumlog.v1.Admin/AlterClusterConfigs",
    admin_pb2.AlterClusterConfigsRequest,
    admin_pb2.AlterClusterConfigsResponse,
)
ADMIN_DESCRIBE_FEATURES = Method(
    "/quorumlog.v1.Admin/DescribeFeatures",
    admin_pb2.DescribeFeaturesRequest,
    admin_pb2.DescribeFeaturesResponse,
)
ADMIN_UPDATE_FEATURES = Method(
    "/quorumlog.v1.Admin/UpdateFeatures",
    admin_pb2.UpdateFeaturesRequest,
    admin_pb2.UpdateFeaturesResponse,
)
ADMIN_UNREGISTER_BROKER = Method(
    "/quorumlog.v1.Admin/UnregisterBroker",
    admin_pb2.UnregisterBrokerRequest,
    admin_pb2.UnregisterBrokerResponse,
)
ADMIN_DESCRIBE_REPLICAS = Method(
    "/quorumlog.v1.Admin/DescribeReplicas",
    admin_pb2.DescribeReplicasRequest,
    admin_pb2.DescribeReplicasResponse,
)
ADMIN_DESCRIBE_CLIENT_QUOTAS = Method(
    "/quorumlog.v1.Admin/DescribeClientQuotas",
    admin_pb2.DescribeClientQuotasRequest,
    admin_pb2.DescribeClientQuotasResponse,
)
ADMIN_ALTER_CLIENT_QUOTAS = Method(
    "/quorumlog.v1.Admin/AlterClientQuotas",
    admin_pb2.AlterClientQuotasRequest,
    admin_pb2.AlterClientQuotasResponse,
)
ADMIN_DESCRIBE_ACLS = Method(
    "/quorumlog.v1.Admin/DescribeAcls",
    admin_pb2.DescribeAclsRequest,
    admin_pb2.DescribeAclsResponse,
)
ADMIN_CREATE_ACLS = Method(
    "/quorumlog.v1.Admin/CreateAcls",
    admin_pb2.CreateAclsRequest,
    admin_pb2.CreateAclsResponse,
)
ADMIN_DELETE_ACLS = Method(
    "/quorumlog.v1.Admin/DeleteAcls",
    admin_pb2.DeleteAclsRequest,
    admin_pb2.DeleteAclsResponse,
)
ADMIN_EXPLAIN_AUTHORIZATION = Method(
    "/quorumlog.v1.Admin/ExplainAuthorization",
    admin_pb2.ExplainAuthorizationRequest,
    admin_pb2.ExplainAuthorizationResponse,
)
ADMIN_DESCRIBE_SCRAM_CREDENTIALS = Method(
    "/quorumlog.v1.Admin/DescribeScramCredentials",
    admin_pb2.DescribeScramCredentialsRequest,
    admin_pb2.DescribeScramCredentialsResponse,
)
ADMIN_ALTER_SCRAM_CREDENTIALS = Method(
    "/quorumlog.v1.Admin/AlterScramCredentials",
    admin_pb2.AlterScramCredentialsRequest,
    admin_pb2.AlterScramCredentialsResponse,
)

AUTH_AUTHENTICATE = Method(
    "/quorumlog.v1.Auth/Authenticate",
    auth_pb2.AuthenticateRequest,
    auth_pb2.AuthenticateResponse,
    streaming=True,
)

CONTROLLER_BROKER_SESSION = Method(
    "/quorumlog.v1.Controller/BrokerSession",
    controller_pb2.BrokerSessionRequest,
    controller_pb2.BrokerSessionResponse,
    streaming=True,
    request_bytes_max=RECORDS_BYTES_MAX,
)
CONTROLLER_RELAY = Method(
    "/quorumlog.v1.Controller/Relay",
    controller_pb2.RelayRequest,
    controller_pb2.RelayResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
CONTROLLER_ALTER_PARTITIONS = Method(
    "/quorumlog.v1.Controller/AlterPartitions",
    controller_pb2.AlterPartitionsRequest,
    controller_pb2.AlterPartitionsResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)

MIRROR_APPEND = Method(
    "/quorumlog.v1.Mirror/Append",
    mirror_pb2.MirrorAppendRequest,
    mirror_pb2.MirrorAppendResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)

QUORUM_DESCRIBE = Method(
    "/quorumlog.v1.Quorum/DescribeQuorum",
    quorum_pb2.DescribeQuorumRequest,
    quorum_pb2.DescribeQuorumResponse,
)
QUORUM_ADD_VOTER = Method(
    "/quorumlog.v1.Quorum/AddVoter", quorum_pb2.AddVoterRequest, quorum_pb2.AddVoterResponse
)
QUORUM_REMOVE_VOTER = Method(
    "/quorumlog.v1.Quorum/RemoveVoter",
    quorum_pb2.RemoveVoterRequest,
    quorum_pb2.RemoveVoterResponse,
)
QUORUM_TRANSFER_LEADERSHIP = Method(
    "/quorumlog.v1.Quorum/TransferLeadership",
    quorum_pb2.TransferLeadershipRequest,
    quorum_pb2.TransferLeadershipResponse,
)

RAFT_ENDPOINT = Method(
    "/quorumlog.v1.Raft/Endpoint",
    raft_pb2.EndpointCall,
    raft_pb2.EndpointResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
RAFT_VOTE = Method(
    "/quorumlog.v1.Raft/Vote",
    raft_pb2.VoteCall,
    raft_pb2.VoteResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
RAFT_FOLLOW = Method(
    "/quorumlog.v1.Raft/Follow",
    raft_pb2.FollowQuorumCall,
    raft_pb2.FollowQuorumResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
RAFT_PROPOSE = Method(
    "/quorumlog.v1.Raft/Propose",
    raft_pb2.ProposeRequest,
    raft_pb2.ProposeResponse,
    streaming=True,
    request_bytes_max=RECORDS_BYTES_MAX,
)

REPLICA_ENDPOINT = Method(
    "/quorumlog.v1.Replica/Endpoint",
    replica_pb2.ReplicaEndpointRequest,
    replica_pb2.ReplicaEndpointResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
REPLICA_EPOCH_END_OFFSETS = Method(
    "/quorumlog.v1.Replica/EpochEndOffsets",
    replica_pb2.EpochEndOffsetsRequest,
    replica_pb2.EpochEndOffsetsResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)

TRANSACTION_COORDINATION_WRITE_MARKERS = Method(
    "/quorumlog.v1.TransactionCoordination/WriteMarkers",
    transaction_coordination_pb2.WriteMarkersRequest,
    transaction_coordination_pb2.WriteMarkersResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
TRANSACTION_COORDINATION_VERIFY_TRANSACTIONS = Method(
    "/quorumlog.v1.TransactionCoordination/VerifyTransactions",
    transaction_coordination_pb2.VerifyTransactionsRequest,
    transaction_coordination_pb2.VerifyTransactionsResponse,
    request_bytes_max=RECORDS_BYTES_MAX,
)
