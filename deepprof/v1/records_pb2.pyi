from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Clock(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLOCK_UNSPECIFIED: _ClassVar[Clock]
    CLOCK_UNIX: _ClassVar[Clock]
    CLOCK_SESSION: _ClassVar[Clock]

class TableKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TABLE_KIND_UNSPECIFIED: _ClassVar[TableKind]
    TABLE_KIND_DEVICE_EVENTS: _ClassVar[TableKind]
    TABLE_KIND_HOST_EVENTS: _ClassVar[TableKind]
    TABLE_KIND_ANNOTATIONS: _ClassVar[TableKind]
    TABLE_KIND_MEMORY_EVENTS: _ClassVar[TableKind]
    TABLE_KIND_DEVICES: _ClassVar[TableKind]
    TABLE_KIND_COLLECTIVES: _ClassVar[TableKind]
    TABLE_KIND_OPERANDS: _ClassVar[TableKind]
    TABLE_KIND_STACKS: _ClassVar[TableKind]
    TABLE_KIND_EVENT_STACKS: _ClassVar[TableKind]
    TABLE_KIND_LAUNCH_SHAPES: _ClassVar[TableKind]
    TABLE_KIND_CONTEXT_SUMS: _ClassVar[TableKind]
    TABLE_KIND_CONTEXT_NODES: _ClassVar[TableKind]

class CollectorLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECTOR_LEVEL_UNSPECIFIED: _ClassVar[CollectorLevel]
    COLLECTOR_LEVEL_FULL: _ClassVar[CollectorLevel]
    COLLECTOR_LEVEL_DUTY: _ClassVar[CollectorLevel]
    COLLECTOR_LEVEL_OFF: _ClassVar[CollectorLevel]
CLOCK_UNSPECIFIED: Clock
CLOCK_UNIX: Clock
CLOCK_SESSION: Clock
TABLE_KIND_UNSPECIFIED: TableKind
TABLE_KIND_DEVICE_EVENTS: TableKind
TABLE_KIND_HOST_EVENTS: TableKind
TABLE_KIND_ANNOTATIONS: TableKind
TABLE_KIND_MEMORY_EVENTS: TableKind
TABLE_KIND_DEVICES: TableKind
TABLE_KIND_COLLECTIVES: TableKind
TABLE_KIND_OPERANDS: TableKind
TABLE_KIND_STACKS: TableKind
TABLE_KIND_EVENT_STACKS: TableKind
TABLE_KIND_LAUNCH_SHAPES: TableKind
TABLE_KIND_CONTEXT_SUMS: TableKind
TABLE_KIND_CONTEXT_NODES: TableKind
COLLECTOR_LEVEL_UNSPECIFIED: CollectorLevel
COLLECTOR_LEVEL_FULL: CollectorLevel
COLLECTOR_LEVEL_DUTY: CollectorLevel
COLLECTOR_LEVEL_OFF: CollectorLevel

class Table(_message.Message):
    __slots__ = ("kind", "arrow")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    kind: TableKind
    arrow: bytes
    def __init__(self, kind: _Optional[_Union[TableKind, str]] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("job", "rank", "world_size", "collector", "clock", "epoch_unix_ns", "clock_offset_ns", "host", "format", "source", "notes", "rank_known")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    RANK_KNOWN_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    world_size: int
    collector: str
    clock: Clock
    epoch_unix_ns: int
    clock_offset_ns: int
    host: str
    format: str
    source: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    rank_known: bool
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., collector: _Optional[str] = ..., clock: _Optional[_Union[Clock, str]] = ..., epoch_unix_ns: _Optional[int] = ..., clock_offset_ns: _Optional[int] = ..., host: _Optional[str] = ..., format: _Optional[str] = ..., source: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ..., rank_known: bool = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("first", "names", "first_name", "complete_until_ns", "tables")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    FIRST_NAME_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_UNTIL_NS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    first: int
    names: _containers.RepeatedScalarFieldContainer[str]
    first_name: int
    complete_until_ns: int
    tables: _containers.RepeatedCompositeFieldContainer[Table]
    def __init__(self, first: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., first_name: _Optional[int] = ..., complete_until_ns: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[Table, _Mapping]]] = ...) -> None: ...

class Gap(_message.Message):
    __slots__ = ("first", "lost", "reason")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first: int
    lost: int
    reason: str
    def __init__(self, first: _Optional[int] = ..., lost: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("dropped", "flagged", "await_account")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class FlaggedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    FLAGGED_FIELD_NUMBER: _ClassVar[int]
    AWAIT_ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    dropped: _containers.ScalarMap[str, int]
    flagged: _containers.ScalarMap[str, int]
    await_account: bool
    def __init__(self, dropped: _Optional[_Mapping[str, int]] = ..., flagged: _Optional[_Mapping[str, int]] = ..., await_account: bool = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("level", "reason", "since_unix_ns", "duty_ratio", "overhead_ratio", "spool_nbytes", "lost", "level_changes", "notice")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    DUTY_RATIO_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_RATIO_FIELD_NUMBER: _ClassVar[int]
    SPOOL_NBYTES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LEVEL_CHANGES_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    level: CollectorLevel
    reason: str
    since_unix_ns: int
    duty_ratio: float
    overhead_ratio: float
    spool_nbytes: int
    lost: int
    level_changes: int
    notice: str
    def __init__(self, level: _Optional[_Union[CollectorLevel, str]] = ..., reason: _Optional[str] = ..., since_unix_ns: _Optional[int] = ..., duty_ratio: _Optional[float] = ..., overhead_ratio: _Optional[float] = ..., spool_nbytes: _Optional[int] = ..., lost: _Optional[int] = ..., level_changes: _Optional[int] = ..., notice: _Optional[str] = ...) -> None: ...

class Account(_message.Message):
    __slots__ = ("received", "accepted", "invalid", "duplicate", "dropped", "gaps", "lost", "kinds", "missing")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class MissingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    INVALID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    received: int
    accepted: int
    invalid: int
    duplicate: int
    dropped: _containers.ScalarMap[str, int]
    gaps: int
    lost: int
    kinds: _containers.RepeatedCompositeFieldContainer[KindAccount]
    missing: _containers.ScalarMap[str, int]
    def __init__(self, received: _Optional[int] = ..., accepted: _Optional[int] = ..., invalid: _Optional[int] = ..., duplicate: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ..., gaps: _Optional[int] = ..., lost: _Optional[int] = ..., kinds: _Optional[_Iterable[_Union[KindAccount, _Mapping]]] = ..., missing: _Optional[_Mapping[str, int]] = ...) -> None: ...

class KindAccount(_message.Message):
    __slots__ = ("kind", "accepted", "dropped")
    class DroppedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    kind: str
    accepted: int
    dropped: _containers.ScalarMap[str, int]
    def __init__(self, kind: _Optional[str] = ..., accepted: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ...) -> None: ...
