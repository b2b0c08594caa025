from deepprof.v1 import query_pb2 as _query_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: int
    def __init__(self, records: _Optional[int] = ...) -> None: ...

class ForgetJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ForgetJobResponse(_message.Message):
    __slots__ = ("iterations",)
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    iterations: int
    def __init__(self, iterations: _Optional[int] = ...) -> None: ...

class CaptureWindowRequest(_message.Message):
    __slots__ = ("job", "rank")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class CaptureWindowResponse(_message.Message):
    __slots__ = ("capture",)
    CAPTURE_FIELD_NUMBER: _ClassVar[int]
    capture: _query_pb2.Capture
    def __init__(self, capture: _Optional[_Union[_query_pb2.Capture, _Mapping]] = ...) -> None: ...
