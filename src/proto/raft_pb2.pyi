from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Voter(_message.Message):
    __slots__ = ("node_id", "directory_id")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    directory_id: bytes
    def __init__(self, node_id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader_id", "previous_offset", "previous_epoch", "batches", "high_watermark", "sequence")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader_id: int
    previous_offset: int
    previous_epoch: int
    batches: bytes
    high_watermark: int
    sequence: int
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., previous_offset: _Optional[int] = ..., previous_epoch: _Optional[int] = ..., batches: _Optional[bytes] = ..., high_watermark: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("epoch", "sequence", "accepted", "flushed_end_offset", "diverging_epoch", "diverging_end_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIVERGING_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sequence: int
    accepted: bool
    flushed_end_offset: int
    diverging_epoch: int
    diverging_end_offset: int
    def __init__(self, epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., accepted: _Optional[bool] = ..., flushed_end_offset: _Optional[int] = ..., diverging_epoch: _Optional[int] = ..., diverging_end_offset: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "candidate", "voter", "last_epoch", "log_end_offset", "pre_vote")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    LAST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    candidate: Voter
    voter: Voter
    last_epoch: int
    log_end_offset: int
    pre_vote: bool
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., candidate: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., voter: _Optional[_Union[Voter, _Mapping[str, object]]] = ..., last_epoch: _Optional[int] = ..., log_end_offset: _Optional[int] = ..., pre_vote: _Optional[bool] = ...) -> None: ...

class VoteResponse(_message.Message):
    __slots__ = ("epoch", "granted", "leader_id")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    granted: bool
    leader_id: int
    def __init__(self, epoch: _Optional[int] = ..., granted: _Optional[bool] = ..., leader_id: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader_id", "end_offset", "end_epoch", "size", "position", "content", "crc")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader_id: int
    end_offset: int
    end_epoch: int
    size: int
    position: int
    content: bytes
    crc: int
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ..., end_offset: _Optional[int] = ..., end_epoch: _Optional[int] = ..., size: _Optional[int] = ..., position: _Optional[int] = ..., content: _Optional[bytes] = ..., crc: _Optional[int] = ...) -> None: ...

class SnapshotResponse(_message.Message):
    __slots__ = ("epoch", "position", "installed")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    position: int
    installed: bool
    def __init__(self, epoch: _Optional[int] = ..., position: _Optional[int] = ..., installed: _Optional[bool] = ...) -> None: ...

class TimeoutNowRequest(_message.Message):
    __slots__ = ("cluster_id", "epoch", "leader_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    epoch: int
    leader_id: int
    def __init__(self, cluster_id: _Optional[str] = ..., epoch: _Optional[int] = ..., leader_id: _Optional[int] = ...) -> None: ...

class TimeoutNowResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...
