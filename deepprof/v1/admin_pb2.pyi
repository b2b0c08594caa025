from deepprof.v1 import query_pb2 as _query_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

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

class ListSendersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSendersResponse(_message.Message):
    __slots__ = ("senders",)
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    senders: _containers.RepeatedCompositeFieldContainer[Sender]
    def __init__(self, senders: _Optional[_Iterable[_Union[Sender, _Mapping]]] = ...) -> None: ...

class Sender(_message.Message):
    __slots__ = ("sender", "jobs", "ranks", "connected", "records", "paced_ns", "waiting_nbytes", "kept_nbytes", "refused", "share")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SENDER_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PACED_NS_FIELD_NUMBER: _ClassVar[int]
    WAITING_NBYTES_FIELD_NUMBER: _ClassVar[int]
    KEPT_NBYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    sender: str
    jobs: int
    ranks: int
    connected: int
    records: int
    paced_ns: int
    waiting_nbytes: int
    kept_nbytes: int
    refused: _containers.ScalarMap[str, int]
    share: Share
    def __init__(self, sender: _Optional[str] = ..., jobs: _Optional[int] = ..., ranks: _Optional[int] = ..., connected: _Optional[int] = ..., records: _Optional[int] = ..., paced_ns: _Optional[int] = ..., waiting_nbytes: _Optional[int] = ..., kept_nbytes: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ..., share: _Optional[_Union[Share, _Mapping]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("ranks", "records_per_s", "kept_nbytes", "jobs")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_S_FIELD_NUMBER: _ClassVar[int]
    KEPT_NBYTES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ranks: int
    records_per_s: int
    kept_nbytes: int
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ranks: _Optional[int] = ..., records_per_s: _Optional[int] = ..., kept_nbytes: _Optional[int] = ..., jobs: _Optional[_Iterable[str]] = ...) -> None: ...
