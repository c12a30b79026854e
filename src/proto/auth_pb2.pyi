from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class AuthenticateRequest(_message.Message):
    __slots__ = ("mechanism", "message")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    message: bytes
    def __init__(self, mechanism: _Optional[str] = ..., message: _Optional[bytes] = ...) -> None: ...

class AuthenticateResponse(_message.Message):
    __slots__ = ("message", "token", "expires_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    token: str
    expires_ms: int
    def __init__(self, message: _Optional[bytes] = ..., token: _Optional[str] = ..., expires_ms: _Optional[int] = ...) -> None: ...
