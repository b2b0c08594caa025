from deepprof.v1 import records_pb2 as _records_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SendRequest(_message.Message):
    __slots__ = ("hello", "batch", "gap", "end", "status")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    hello: _records_pb2.Hello
    batch: _records_pb2.Batch
    gap: _records_pb2.Gap
    end: _records_pb2.End
    status: _records_pb2.Status
    def __init__(self, hello: _Optional[_Union[_records_pb2.Hello, _Mapping]] = ..., batch: _Optional[_Union[_records_pb2.Batch, _Mapping]] = ..., gap: _Optional[_Union[_records_pb2.Gap, _Mapping]] = ..., end: _Optional[_Union[_records_pb2.End, _Mapping]] = ..., status: _Optional[_Union[_records_pb2.Status, _Mapping]] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("durable", "names", "ended", "takes_status", "account", "counted")
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TAKES_STATUS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    durable: int
    names: int
    ended: bool
    takes_status: bool
    account: _records_pb2.Account
    counted: int
    def __init__(self, durable: _Optional[int] = ..., names: _Optional[int] = ..., ended: bool = ..., takes_status: bool = ..., account: _Optional[_Union[_records_pb2.Account, _Mapping]] = ..., counted: _Optional[int] = ...) -> None: ...
