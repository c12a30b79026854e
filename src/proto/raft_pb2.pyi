from . import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Voter(_message.Message):
    __slots__ = ("node_id", "directory_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class VoterAddress(_message.Message):
    __slots__ = ("voter", "address")
    VOTER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    voter: Voter
    address: str
    def __init__(self, voter: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., address: _Optional[str] = ...) -> None: ...

class Introduction(_message.Message):
    __slots__ = ("cluster_id", "sender", "receiver", "incarnation", "stream_number", "is_snapshot")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STREAM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    sender: Voter
    receiver: Voter
    incarnation: bytes
    stream_number: int
    is_snapshot: bool
    def __init__(self, cluster_id: _Optional[str] = ..., sender: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., receiver: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., incarnation: _Optional[bytes] = ..., stream_number: _Optional[int] = ..., is_snapshot: _Optional[bool] = ...) -> None: ...

class RaftFrame(_message.Message):
    __slots__ = ("introduction", "messages", "is_last", "error")
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    introduction: Introduction
    messages: _containers.RepeatedCompositeFieldContainer[RaftMessage]
    is_last: bool
    error: _errors_pb2.Error
    def __init__(self, introduction: _Optional[_Union[Introduction, _Mapping[str, object]]] = ..., messages: _Optional[_Iterable[_Union[RaftMessage, _Mapping[str, object]]]] = ..., is_last: _Optional[bool] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ...) -> None: ...

class EndpointCall(_message.Message):
    __slots__ = ("introduction",)
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    introduction: Introduction
    def __init__(self, introduction: _Optional[_Union[Introduction, _Mapping[str, object]]] = ...) -> None: ...

class EndpointResponse(_message.Message):
    __slots__ = ("port",)
    PORT_FIELD_NUMBER: _ClassVar[int]
    port: int
    def __init__(self, port: _Optional[int] = ...) -> None: ...

class RaftMessage(_message.Message):
    __slots__ = ("append_request", "append_response", "append_rejected", "heartbeat", "heartbeat_response", "snapshot_chunk", "snapshot_response", "timeout_now", "end_epoch", "vote_request", "vote_response", "follow_request", "follow_response")
    APPEND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPEND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    APPEND_REJECTED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_CHUNK_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    END_EPOCH_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_REQUEST_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    append_request: AppendRequest
    append_response: AppendResponse
    append_rejected: AppendRejected
    heartbeat: Heartbeat
    heartbeat_response: HeartbeatResponse
    snapshot_chunk: SnapshotChunk
    snapshot_response: SnapshotResponse
    timeout_now: TimeoutNow
    end_epoch: EndEpoch
    vote_request: VoteRequest
    vote_response: VoteResponse
    follow_request: FollowQuorumRequest
    follow_response: FollowQuorumResponse
    def __init__(self, append_request: _Optional[_Union[AppendRequest, _Mapping[str, object]]] = ..., append_response: _Optional[_Union[AppendResponse, _Mapping[str, object]]] = ..., append_rejected: _Optional[_Union[AppendRejected, _Mapping[str, object]]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping[str, object]]] = ..., heartbeat_response: _Optional[_Union[HeartbeatResponse, _Mapping[str, object]]] = ..., snapshot_chunk: _Optional[_Union[SnapshotChunk, _Mapping[str, object]]] = ..., snapshot_response: _Optional[_Union[SnapshotResponse, _Mapping[str, object]]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping[str, object]]] = ..., end_epoch: _Optional[_Union[EndEpoch, _Mapping[str, object]]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping[str, object]]] = ..., vote_response: _Optional[_Union[VoteResponse, _Mapping[str, object]]] = ..., follow_request: _Optional[_Union[FollowQuorumRequest, _Mapping[str, object]]] = ..., follow_response: _Optional[_Union[FollowQuorumResponse, _Mapping[str, object]]] = ...) -> None: ...

class LogEnd(_message.Message):
    __slots__ = ("epoch", "offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    offset: int
    def __init__(self, epoch: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("epoch", "prev", "batches", "high_watermark")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREV_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    prev: LogEnd
    batches: bytes
    high_watermark: int
    def __init__(self, epoch: _Optional[int] = ..., prev: _Optional[_Union[LogEnd, _Mapping[str, object]]] = ..., batches: _Optional[bytes] = ..., high_watermark: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("epoch", "match_end", "received_end")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MATCH_END_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_END_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    match_end: int
    received_end: int
    def __init__(self, epoch: _Optional[int] = ..., match_end: _Optional[int] = ..., received_end: _Optional[int] = ...) -> None: ...

class AppendRejected(_message.Message):
    __slots__ = ("epoch", "prev", "hint")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREV_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    prev: LogEnd
    hint: LogEnd
    def __init__(self, epoch: _Optional[int] = ..., prev: _Optional[_Union[LogEnd, _Mapping[str, object]]] = ..., hint: _Optional[_Union[LogEnd, _Mapping[str, object]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("epoch", "high_watermark", "round")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    high_watermark: int
    round: int
    def __init__(self, epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., round: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("epoch", "round", "match_end", "received_end")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MATCH_END_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_END_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    round: int
    match_end: int
    received_end: int
    def __init__(self, epoch: _Optional[int] = ..., round: _Optional[int] = ..., match_end: _Optional[int] = ..., received_end: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("epoch", "snapshot", "voters", "size", "position", "content", "crc")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    snapshot: LogEnd
    voters: _containers.RepeatedCompositeFieldContainer[VoterAddress]
    size: int
    position: int
    content: bytes
    crc: int
    def __init__(self, epoch: _Optional[int] = ..., snapshot: _Optional[_Union[LogEnd, _Mapping[str, object]]] = ..., voters: _Optional[_Iterable[_Union[VoterAddress, _Mapping[str, object]]]] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., content: _Optional[bytes] = ..., crc: _Optional[int] = ...) -> None: ...

class SnapshotResponse(_message.Message):
    __slots__ = ("epoch", "snapshot", "position")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    snapshot: LogEnd
    position: int
    def __init__(self, epoch: _Optional[int] = ..., snapshot: _Optional[_Union[LogEnd, _Mapping[str, object]]] = ..., position: _Optional[int] = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class EndEpoch(_message.Message):
    __slots__ = ("epoch", "successors")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    successors: _containers.RepeatedCompositeFieldContainer[Voter]
    def __init__(self, epoch: _Optional[int] = ..., successors: _Optional[_Iterable[_Union[Voter, _Mapping[str, object]]]] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("epoch", "log_end", "pre_vote", "is_transfer")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    IS_TRANSFER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    log_end: LogEnd
    pre_vote: bool
    is_transfer: bool
    def __init__(self, epoch: _Optional[int] = ..., log_end: _Optional[_Union[LogEnd, _Mapping[str, object]]] = ..., pre_vote: _Optional[bool] = ..., is_transfer: _Optional[bool] = ...) -> None: ...

class VoteCall(_message.Message):
    __slots__ = ("introduction", "request")
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    introduction: Introduction
    request: VoteRequest
    def __init__(self, introduction: _Optional[_Union[Introduction, _Mapping[str, object]]] = ..., request: _Optional[_Union[VoteRequest, _Mapping[str, object]]] = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("epoch", "granted", "pre_vote")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    granted: bool
    pre_vote: bool
    def __init__(self, epoch: _Optional[int] = ..., granted: _Optional[bool] = ..., pre_vote: _Optional[bool] = ...) -> None: ...

class FollowQuorumRequest(_message.Message):
    __slots__ = ("epoch", "address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    address: str
    def __init__(self, epoch: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class FollowQuorumCall(_message.Message):
    __slots__ = ("introduction", "request")
    INTRODUCTION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    introduction: Introduction
    request: FollowQuorumRequest
    def __init__(self, introduction: _Optional[_Union[Introduction, _Mapping[str, object]]] = ..., request: _Optional[_Union[FollowQuorumRequest, _Mapping[str, object]]] = ...) -> None: ...

class FollowQuorumResponse(_message.Message):
    __slots__ = ("epoch", "sender", "leader", "leader_address")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sender: Voter
    leader: Voter
    leader_address: str
    def __init__(self, epoch: _Optional[int] = ..., sender: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., leader: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., leader_address: _Optional[str] = ...) -> None: ...

class ProposeRequest(_message.Message):
    __slots__ = ("id", "values", "more")
    ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    id: int
    values: _containers.RepeatedScalarFieldContainer[bytes]
    more: _containers.RepeatedCompositeFieldContainer[ProposeRequest]
    def __init__(self, id: _Optional[int] = ..., values: _Optional[_Iterable[bytes]] = ..., more: _Optional[_Iterable[_Union[ProposeRequest, _Mapping[str, object]]]] = ...) -> None: ...

class ProposeResponse(_message.Message):
    __slots__ = ("id", "offsets", "error", "more")
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    id: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    error: _errors_pb2.Error
    more: _containers.RepeatedCompositeFieldContainer[ProposeResponse]
    def __init__(self, id: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping[str, object]]] = ..., more: _Optional[_Iterable[_Union[ProposeResponse, _Mapping[str, object]]]] = ...) -> None: ...
