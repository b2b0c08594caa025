from deepprof.v1 import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MinerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MINER_STATE_UNSPECIFIED: _ClassVar[MinerState]
    MINER_STATE_LEARNING: _ClassVar[MinerState]
    MINER_STATE_LOCKED: _ClassVar[MinerState]
    MINER_STATE_LOST: _ClassVar[MinerState]
MINER_STATE_UNSPECIFIED: MinerState
MINER_STATE_LEARNING: MinerState
MINER_STATE_LOCKED: MinerState
MINER_STATE_LOST: MinerState

class Job(_message.Message):
    __slots__ = ("job", "ranks", "connected", "ended", "first_seen_unix_ns", "last_record_unix_ns", "iterations", "account", "active_findings", "sender", "kept_nbytes")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEEN_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_RECORD_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FINDINGS_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    KEPT_NBYTES_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: int
    connected: int
    ended: int
    first_seen_unix_ns: int
    last_record_unix_ns: int
    iterations: int
    account: _records_pb2.Account
    active_findings: _containers.RepeatedScalarFieldContainer[str]
    sender: str
    kept_nbytes: int
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[int] = ..., connected: _Optional[int] = ..., ended: _Optional[int] = ..., first_seen_unix_ns: _Optional[int] = ..., last_record_unix_ns: _Optional[int] = ..., iterations: _Optional[int] = ..., account: _Optional[_Union[_records_pb2.Account, _Mapping]] = ..., active_findings: _Optional[_Iterable[str]] = ..., sender: _Optional[str] = ..., kept_nbytes: _Optional[int] = ...) -> None: ...

class DeviceState(_message.Message):
    __slots__ = ("device", "stream", "state", "loop", "period", "confidence_ratio", "evidence", "boundary_source", "iterations", "last_iteration_start_ns", "last_iteration_ns", "last_interval_ns", "median_iteration_ns", "foreign_kernels", "resets")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_RATIO_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    LAST_ITERATION_START_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_ITERATION_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_ITERATION_NS_FIELD_NUMBER: _ClassVar[int]
    FOREIGN_KERNELS_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    device: int
    stream: int
    state: MinerState
    loop: int
    period: int
    confidence_ratio: float
    evidence: str
    boundary_source: str
    iterations: int
    last_iteration_start_ns: int
    last_iteration_ns: int
    last_interval_ns: int
    median_iteration_ns: int
    foreign_kernels: int
    resets: int
    def __init__(self, device: _Optional[int] = ..., stream: _Optional[int] = ..., state: _Optional[_Union[MinerState, str]] = ..., loop: _Optional[int] = ..., period: _Optional[int] = ..., confidence_ratio: _Optional[float] = ..., evidence: _Optional[str] = ..., boundary_source: _Optional[str] = ..., iterations: _Optional[int] = ..., last_iteration_start_ns: _Optional[int] = ..., last_iteration_ns: _Optional[int] = ..., last_interval_ns: _Optional[int] = ..., median_iteration_ns: _Optional[int] = ..., foreign_kernels: _Optional[int] = ..., resets: _Optional[int] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("job", "rank", "world_size", "host", "collector", "connected", "ended", "settled", "first_seen_unix_ns", "last_record_unix_ns", "clock_offset_ns", "account", "devices", "status", "stages", "contexts")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEEN_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    LAST_RECORD_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_NS_FIELD_NUMBER: _ClassVar[int]
    ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    world_size: int
    host: str
    collector: str
    connected: bool
    ended: bool
    settled: bool
    first_seen_unix_ns: int
    last_record_unix_ns: int
    clock_offset_ns: int
    account: _records_pb2.Account
    devices: _containers.RepeatedCompositeFieldContainer[DeviceState]
    status: _records_pb2.Status
    stages: _containers.RepeatedCompositeFieldContainer[StageMetrics]
    contexts: LeadingFigures
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., host: _Optional[str] = ..., collector: _Optional[str] = ..., connected: bool = ..., ended: bool = ..., settled: bool = ..., first_seen_unix_ns: _Optional[int] = ..., last_record_unix_ns: _Optional[int] = ..., clock_offset_ns: _Optional[int] = ..., account: _Optional[_Union[_records_pb2.Account, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[DeviceState, _Mapping]]] = ..., status: _Optional[_Union[_records_pb2.Status, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[StageMetrics, _Mapping]]] = ..., contexts: _Optional[_Union[LeadingFigures, _Mapping]] = ...) -> None: ...

class ContextFigures(_message.Message):
    __slots__ = ("context", "host_ns", "device_ns", "latest_host_ns", "latest_device_ns")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    HOST_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NS_FIELD_NUMBER: _ClassVar[int]
    LATEST_HOST_NS_FIELD_NUMBER: _ClassVar[int]
    LATEST_DEVICE_NS_FIELD_NUMBER: _ClassVar[int]
    context: str
    host_ns: int
    device_ns: int
    latest_host_ns: int
    latest_device_ns: int
    def __init__(self, context: _Optional[str] = ..., host_ns: _Optional[int] = ..., device_ns: _Optional[int] = ..., latest_host_ns: _Optional[int] = ..., latest_device_ns: _Optional[int] = ...) -> None: ...

class LeadingFigures(_message.Message):
    __slots__ = ("lines", "other", "window_ns")
    LINES_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    WINDOW_NS_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[ContextFigures]
    other: ContextFigures
    window_ns: int
    def __init__(self, lines: _Optional[_Iterable[_Union[ContextFigures, _Mapping]]] = ..., other: _Optional[_Union[ContextFigures, _Mapping]] = ..., window_ns: _Optional[int] = ...) -> None: ...

class Loop(_message.Message):
    __slots__ = ("rank", "device", "loop", "period", "confidence_ratio", "evidence", "boundary_source", "iterations")
    RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_RATIO_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    device: int
    loop: int
    period: int
    confidence_ratio: float
    evidence: str
    boundary_source: str
    iterations: int
    def __init__(self, rank: _Optional[int] = ..., device: _Optional[int] = ..., loop: _Optional[int] = ..., period: _Optional[int] = ..., confidence_ratio: _Optional[float] = ..., evidence: _Optional[str] = ..., boundary_source: _Optional[str] = ..., iterations: _Optional[int] = ...) -> None: ...

class LoopMetrics(_message.Message):
    __slots__ = ("rank", "device", "loop", "iterations", "avg_interval_ns", "max_interval_ns", "avg_overlap_ratio", "avg_operation_ns", "avg_size_nbytes", "median_iteration_ns", "p5_iteration_ns", "p95_iteration_ns")
    RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    AVG_INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    AVG_OVERLAP_RATIO_FIELD_NUMBER: _ClassVar[int]
    AVG_OPERATION_NS_FIELD_NUMBER: _ClassVar[int]
    AVG_SIZE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_ITERATION_NS_FIELD_NUMBER: _ClassVar[int]
    P5_ITERATION_NS_FIELD_NUMBER: _ClassVar[int]
    P95_ITERATION_NS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    device: int
    loop: int
    iterations: int
    avg_interval_ns: int
    max_interval_ns: int
    avg_overlap_ratio: float
    avg_operation_ns: int
    avg_size_nbytes: int
    median_iteration_ns: int
    p5_iteration_ns: int
    p95_iteration_ns: int
    def __init__(self, rank: _Optional[int] = ..., device: _Optional[int] = ..., loop: _Optional[int] = ..., iterations: _Optional[int] = ..., avg_interval_ns: _Optional[int] = ..., max_interval_ns: _Optional[int] = ..., avg_overlap_ratio: _Optional[float] = ..., avg_operation_ns: _Optional[int] = ..., avg_size_nbytes: _Optional[int] = ..., median_iteration_ns: _Optional[int] = ..., p5_iteration_ns: _Optional[int] = ..., p95_iteration_ns: _Optional[int] = ...) -> None: ...

class StageMetrics(_message.Message):
    __slots__ = ("stage", "busy_ns", "idle_ns", "host_ns", "confidence_ratio")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    BUSY_NS_FIELD_NUMBER: _ClassVar[int]
    IDLE_NS_FIELD_NUMBER: _ClassVar[int]
    HOST_NS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_RATIO_FIELD_NUMBER: _ClassVar[int]
    stage: str
    busy_ns: int
    idle_ns: int
    host_ns: int
    confidence_ratio: float
    def __init__(self, stage: _Optional[str] = ..., busy_ns: _Optional[int] = ..., idle_ns: _Optional[int] = ..., host_ns: _Optional[int] = ..., confidence_ratio: _Optional[float] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("rule", "severity", "title", "summary", "advice", "rank", "confidence_ratio", "active_since_unix_ns")
    RULE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_RATIO_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SINCE_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    rule: str
    severity: str
    title: str
    summary: str
    advice: str
    rank: int
    confidence_ratio: float
    active_since_unix_ns: int
    def __init__(self, rule: _Optional[str] = ..., severity: _Optional[str] = ..., title: _Optional[str] = ..., summary: _Optional[str] = ..., advice: _Optional[str] = ..., rank: _Optional[int] = ..., confidence_ratio: _Optional[float] = ..., active_since_unix_ns: _Optional[int] = ...) -> None: ...

class Capture(_message.Message):
    __slots__ = ("name", "job", "rank", "reason", "taken_unix_ns", "nbytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TAKEN_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    job: str
    rank: int
    reason: str
    taken_unix_ns: int
    nbytes: int
    def __init__(self, name: _Optional[str] = ..., job: _Optional[str] = ..., rank: _Optional[int] = ..., reason: _Optional[str] = ..., taken_unix_ns: _Optional[int] = ..., nbytes: _Optional[int] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "past")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAST_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    past: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., past: bool = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListRanksRequest(_message.Message):
    __slots__ = ("job", "page_size", "page_token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    page_size: int
    page_token: str
    def __init__(self, job: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRanksResponse(_message.Message):
    __slots__ = ("ranks", "next_page_token")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedCompositeFieldContainer[Rank]
    next_page_token: str
    def __init__(self, ranks: _Optional[_Iterable[_Union[Rank, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListLoopsRequest(_message.Message):
    __slots__ = ("job", "rank", "page_size", "page_token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    page_size: int
    page_token: str
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLoopsResponse(_message.Message):
    __slots__ = ("loops", "next_page_token")
    LOOPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    loops: _containers.RepeatedCompositeFieldContainer[Loop]
    next_page_token: str
    def __init__(self, loops: _Optional[_Iterable[_Union[Loop, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListIterationsRequest(_message.Message):
    __slots__ = ("job", "rank", "device", "page_size", "page_token")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    device: int
    page_size: int
    page_token: str
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., device: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListIterationsResponse(_message.Message):
    __slots__ = ("arrow", "next_page_token")
    ARROW_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    arrow: bytes
    next_page_token: str
    def __init__(self, arrow: _Optional[bytes] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetMetricsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class GetMetricsResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[LoopMetrics]
    def __init__(self, metrics: _Optional[_Iterable[_Union[LoopMetrics, _Mapping]]] = ...) -> None: ...

class GetContextsRequest(_message.Message):
    __slots__ = ("job", "rank", "start_ns", "end_ns")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    start_ns: int
    end_ns: int
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ...) -> None: ...

class GetContextsResponse(_message.Message):
    __slots__ = ("nodes", "sums", "windows", "folded", "step_ns", "earliest_ns")
    NODES_FIELD_NUMBER: _ClassVar[int]
    SUMS_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    FOLDED_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_NS_FIELD_NUMBER: _ClassVar[int]
    nodes: bytes
    sums: bytes
    windows: int
    folded: int
    step_ns: int
    earliest_ns: int
    def __init__(self, nodes: _Optional[bytes] = ..., sums: _Optional[bytes] = ..., windows: _Optional[int] = ..., folded: _Optional[int] = ..., step_ns: _Optional[int] = ..., earliest_ns: _Optional[int] = ...) -> None: ...

class GetFindingsRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class GetFindingsResponse(_message.Message):
    __slots__ = ("findings", "examined_unix_ns", "report")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    EXAMINED_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    examined_unix_ns: int
    report: str
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., examined_unix_ns: _Optional[int] = ..., report: _Optional[str] = ...) -> None: ...

class ReadWindowRequest(_message.Message):
    __slots__ = ("job", "ranks", "after")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    after: _containers.RepeatedCompositeFieldContainer[ReadPosition]
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., after: _Optional[_Iterable[_Union[ReadPosition, _Mapping]]] = ...) -> None: ...

class ReadPosition(_message.Message):
    __slots__ = ("rank", "collector", "next", "names")
    RANK_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    collector: str
    next: int
    names: int
    def __init__(self, rank: _Optional[int] = ..., collector: _Optional[str] = ..., next: _Optional[int] = ..., names: _Optional[int] = ...) -> None: ...

class ReadWindowResponse(_message.Message):
    __slots__ = ("rank", "hello", "batch", "gap", "end", "skipped")
    RANK_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    rank: int
    hello: _records_pb2.Hello
    batch: _records_pb2.Batch
    gap: _records_pb2.Gap
    end: _records_pb2.End
    skipped: int
    def __init__(self, rank: _Optional[int] = ..., hello: _Optional[_Union[_records_pb2.Hello, _Mapping]] = ..., batch: _Optional[_Union[_records_pb2.Batch, _Mapping]] = ..., gap: _Optional[_Union[_records_pb2.Gap, _Mapping]] = ..., end: _Optional[_Union[_records_pb2.End, _Mapping]] = ..., skipped: _Optional[int] = ...) -> None: ...

class ListCapturesRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class ListCapturesResponse(_message.Message):
    __slots__ = ("captures",)
    CAPTURES_FIELD_NUMBER: _ClassVar[int]
    captures: _containers.RepeatedCompositeFieldContainer[Capture]
    def __init__(self, captures: _Optional[_Iterable[_Union[Capture, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("job", "interval_ms")
    JOB_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    job: str
    interval_ms: int
    def __init__(self, job: _Optional[str] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("jobs", "ranks", "now_unix_ns")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    NOW_UNIX_NS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    ranks: _containers.RepeatedCompositeFieldContainer[Rank]
    now_unix_ns: int
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[Rank, _Mapping]]] = ..., now_unix_ns: _Optional[int] = ...) -> None: ...
