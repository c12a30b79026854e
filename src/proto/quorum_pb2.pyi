from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeQuorumRequest(_message.Message):
    __slots__ = ("local",)
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    local: bool
    def __init__(self, local: _Optional[bool] = ...) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("cluster_id", "leader_id", "leader_epoch", "high_watermark", "voters", "observers", "answered_by", "is_broker_alone")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    OBSERVERS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    IS_BROKER_ALONE_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    observers: _containers.RepeatedCompositeFieldContainer[QuorumReplica]
    answered_by: int
    is_broker_alone: bool
    def __init__(self, cluster_id: _Optional[str] = ..., leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., high_watermark: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[QuorumReplica, _Mapping[str, object]]]] = ..., observers: _Optional[_Iterable[_Union[QuorumReplica, _Mapping[str, object]]]] = ..., answered_by: _Optional[int] = ..., is_broker_alone: _Optional[bool] = ...) -> None: ...

class QuorumReplica(_message.Message):
    __slots__ = ("id", "directory_id", "address", "log_end_offset", "lag", "heard_ms_ago")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LOG_END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    id: int
    directory_id: bytes
    address: str
    log_end_offset: int
    lag: int
    heard_ms_ago: int
    def __init__(self, id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., address: _Optional[str] = ..., log_end_offset: _Optional[int] = ..., lag: _Optional[int] = ..., heard_ms_ago: _Optional[int] = ...) -> None: ...

class AddVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "id", "directory_id", "address")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    id: int
    directory_id: bytes
    address: str
    def __init__(self, cluster_id: _Optional[str] = ..., id: _Optional[int] = ..., directory_id: _Optional[bytes] = ..., address: _Optional[str] = ...) -> None: ...

class AddVoterResponse(_message.Message):
    __slots__ = ("directory_id", "address")
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    address: str
    def __init__(self, directory_id: _Optional[bytes] = ..., address: _Optional[str] = ...) -> None: ...

class RemoveVoterRequest(_message.Message):
    __slots__ = ("cluster_id", "id", "directory_id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    id: int
    directory_id: bytes
    def __init__(self, cluster_id: _Optional[str] = ..., id: _Optional[int] = ..., directory_id: _Optional[bytes] = ...) -> None: ...

class RemoveVoterResponse(_message.Message):
    __slots__ = ("directory_id",)
    DIRECTORY_ID_FIELD_NUMBER: _ClassVar[int]
    directory_id: bytes
    def __init__(self, directory_id: _Optional[bytes] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("cluster_id", "id")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    id: int
    def __init__(self, cluster_id: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("leader_id", "leader_epoch")
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    leader_id: int
    leader_epoch: int
    def __init__(self, leader_id: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...
