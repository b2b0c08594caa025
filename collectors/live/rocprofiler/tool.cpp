// A tool of rocprofiler-sdk that writes the same packets as the library for NVIDIA: kernels, copies and ROCTX ranges.
//
// UNTESTED on a GPU: it was compiled against the headers of 0.5 and 1.0, and runs in tests with a made-up SDK. Built by the
// Makefile beside it, where ROCm is; loaded with ROCP_TOOL_LIBRARIES. C++ only because some of the SDK's headers are.
//
// rocprofiler gives buffers on a thread of its own. That thread copies their records into `pending`, and the worker
// takes them from there: only it may number records.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>
#include <rocprofiler-sdk/callback_tracing.h>
#include <rocprofiler-sdk/marker.h>

#define _Static_assert static_assert
extern "C" {
#include "../inject/core.h"
#include "../inject/ranges.h"
}
#undef _Static_assert

namespace {

constexpr size_t BUFFER_NBYTES = 4 << 20, WATERMARK_NBYTES = 3 << 20;
constexpr size_t PENDING = 1 << 20; // 64 MiB; beyond it a buffer is counted as lost
constexpr uint32_t FAILED_CODE = 96;
constexpr int64_t FLUSH_NS = 200000000;

rocprofiler_context_id_t names_context, records_context;
rocprofiler_buffer_id_t buffer;
const char roctx_owner = 0;

std::mutex lock; // of everything below
std::vector<dp_event> pending, taken;
std::unordered_map<uint64_t, uint32_t> kernels, queues, devices;
uint64_t lost, dropped_by_driver;

// Names of kernels end in ".kd", which the sources did not have.
uint32_t kernel_name(const char *text)
{
    std::string name(text ? text : "");
    if (name.size() > 3 && name.compare(name.size() - 3, 3, ".kd") == 0)
        name.resize(name.size() - 3);
    return dp_intern(name.c_str());
}

// Streams are queues in the order in which they first came.
uint32_t queue_number(uint64_t handle) { return queues.emplace(handle, queues.size() + 1).first->second; }

uint32_t find(const std::unordered_map<uint64_t, uint32_t> &numbers, uint64_t key)
{
    auto found = numbers.find(key);
    return found == numbers.end() ? 0 : found->second;
}

template <typename Record> dp_event begin_event(const Record &record, dp_activity activity)
{
    dp_event event = {};
    event.start_ns = static_cast<int64_t>(record.start_timestamp);
    event.end_ns = static_cast<int64_t>(record.end_timestamp);
    event.correlation = static_cast<uint32_t>(record.correlation_id.internal);
    event.flags = event.correlation ? DP_HAS_CORRELATION : 0;
    event.activity = activity;
    event.copy_kind = DP_NO_COPY;
    return event;
}

dp_event read_kernel(const rocprofiler_buffer_tracing_kernel_dispatch_record_t &record)
{
    dp_event event = begin_event(record, DP_KERNEL);
    event.name = find(kernels, record.dispatch_info.kernel_id);
    event.device = find(devices, record.dispatch_info.agent_id.handle);
    event.stream = queue_number(record.dispatch_info.queue_id.handle);
    return event;
}

struct direction {
    uint8_t kind;
    const char *name;
};

direction find_direction(rocprofiler_memory_copy_operation_t operation)
{
    switch (operation) {
    case ROCPROFILER_MEMORY_COPY_HOST_TO_DEVICE: return {DP_HTOD, "Memcpy HtoD"};
    case ROCPROFILER_MEMORY_COPY_DEVICE_TO_HOST: return {DP_DTOH, "Memcpy DtoH"};
    case ROCPROFILER_MEMORY_COPY_DEVICE_TO_DEVICE: return {DP_DTOD, "Memcpy DtoD"};
    case ROCPROFILER_MEMORY_COPY_HOST_TO_HOST: return {DP_HTOH, "Memcpy HtoH"};
    default: return {DP_NO_COPY, "Memcpy"};
    }
}

// Copies name no queue; they are put on stream 0, which no queue has. Those to the host belong to the device they left.
dp_event read_copy(const rocprofiler_buffer_tracing_memory_copy_record_t &record)
{
    dp_event event = begin_event(record, DP_MEMCPY);
    direction way = find_direction(static_cast<rocprofiler_memory_copy_operation_t>(record.operation));
    event.copy_kind = way.kind;
    event.name = dp_intern(way.name);
    event.nbytes = record.bytes;
    event.device = find(devices, way.kind == DP_DTOH ? record.src_agent_id.handle : record.dst_agent_id.handle);
    return event;
}

bool read(const rocprofiler_record_header_t &header, dp_event &event)
{
    if (header.category != ROCPROFILER_BUFFER_CATEGORY_TRACING)
        return false;
    if (header.kind == ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH)
        event = read_kernel(*static_cast<rocprofiler_buffer_tracing_kernel_dispatch_record_t *>(header.payload));
    else if (header.kind == ROCPROFILER_BUFFER_TRACING_MEMORY_COPY)
        event = read_copy(*static_cast<rocprofiler_buffer_tracing_memory_copy_record_t *>(header.payload));
    else
        return false;
    return event.start_ns > 0 && event.end_ns >= event.start_ns;
}

// On rocprofiler's thread. What it has dropped is told as a total since the buffer was made.
void take_buffer(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t **headers, size_t count,
                 void *, uint64_t dropped_so_far)
{
    std::lock_guard<std::mutex> held(lock);
    lost += dropped_so_far - dropped_by_driver;
    dropped_by_driver = dropped_so_far;
    for (size_t i = 0; i < count; i++) {
        dp_event event;
        if (pending.size() >= PENDING || !read(*headers[i], event))
            lost++;
        else
            pending.push_back(event);
    }
    dp_wake();
}

// On the thread that loads code; kernel ids are never used again.
void take_symbol(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *, void *)
{
    using symbol = rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t;
    if (record.operation != ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER ||
        record.phase != ROCPROFILER_CALLBACK_PHASE_LOAD)
        return;
    auto *data = static_cast<symbol *>(record.payload);
    uint32_t name = kernel_name(data->kernel_name);
    std::lock_guard<std::mutex> held(lock);
    kernels[data->kernel_id] = name;
}

// On the thread that opens or closes a range.
void take_marker(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *, void *)
{
    auto owner = reinterpret_cast<uintptr_t>(&roctx_owner);
    if (record.phase != ROCPROFILER_CALLBACK_PHASE_ENTER)
        return;
    if (record.operation == ROCPROFILER_MARKER_CORE_API_ID_roctxRangePushA && dp_ranges_wanted()) {
        auto *data = static_cast<rocprofiler_callback_tracing_marker_api_data_t *>(record.payload);
        dp_range_begin(owner, dp_intern(data->args.roctxRangePushA.message), DP_ANNOTATION, DP_FROM_ROCTX);
    } else if (record.operation == ROCPROFILER_MARKER_CORE_API_ID_roctxRangePop) {
        dp_range_end(owner);
    }
}

rocprofiler_status_t take_agents(rocprofiler_agent_version_t, const void **agents, size_t count, void *)
{
    std::lock_guard<std::mutex> held(lock);
    for (size_t i = 0; i < count; i++) {
        auto *agent = static_cast<const rocprofiler_agent_t *>(agents[i]);
        if (agent->type == ROCPROFILER_AGENT_TYPE_GPU)
            devices[agent->id.handle] = static_cast<uint32_t>(agent->logical_node_type_id);
    }
    return ROCPROFILER_STATUS_SUCCESS;
}

// From here on the worker's thread.
int64_t flushed_ns, until_ns = DP_NO_TIME;

// What rocprofiler holds in a buffer that is not full comes only when it is asked for. What had completed before is here
// then; how late a completion is put into the buffer nobody says, and the agent allows for some.
void flush()
{
    rocprofiler_timestamp_t before;
    flushed_ns = dp_now_ns();
    if (rocprofiler_get_timestamp(&before) == ROCPROFILER_STATUS_SUCCESS &&
        rocprofiler_flush_buffer(buffer) == ROCPROFILER_STATUS_SUCCESS)
        until_ns = static_cast<int64_t>(before);
}

void give()
{
    uint64_t missing;
    {
        std::lock_guard<std::mutex> held(lock);
        taken.clear();
        taken.swap(pending);
        missing = lost;
        lost = 0;
    }
    if (!taken.empty() || missing)
        dp_put(DP_EVENTS, taken.data(), static_cast<uint32_t>(taken.size()), missing,
               missing ? DP_DRIVER_DROPPED : DP_NO_GAP);
}

// By the clock alone: ranges may come all the time while rocprofiler holds the few records that there are.
void drain(int)
{
    if (dp_now_ns() - flushed_ns > FLUSH_NS)
        flush();
    give();
}

void give_all()
{
    flush();
    give();
}

void tick(dp_tick *now)
{
    rocprofiler_timestamp_t device_ns;
    if (rocprofiler_get_timestamp(&device_ns) == ROCPROFILER_STATUS_SUCCESS)
        now->device_ns = static_cast<int64_t>(device_ns);
    now->events_until_ns = until_ns;
    std::lock_guard<std::mutex> held(lock);
    now->driver_dropped += dropped_by_driver;
}

void set(int on)
{
    auto status = on ? rocprofiler_start_context(records_context) : rocprofiler_stop_context(records_context);
    if (status != ROCPROFILER_STATUS_SUCCESS && on)
        dp_notice(FAILED_CODE, "rocprofiler does not start; another tool may have it");
    if (!on)
        give_all();
}

const dp_source source = {drain, tick, set, give_all, 0, nullptr};

#define TRY(call)                                                                                                      \
    if ((call) != ROCPROFILER_STATUS_SUCCESS)                                                                          \
        return -1

int configure_names()
{
    TRY(rocprofiler_create_context(&names_context));
    TRY(rocprofiler_configure_callback_tracing_service(names_context, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, nullptr,
                                                       0, take_symbol, nullptr));
    TRY(rocprofiler_start_context(names_context));
    return 0;
}

int configure_records()
{
    TRY(rocprofiler_create_context(&records_context));
    // There are two buffers, and each flush swaps them: without LOSSLESS the second has no room at all. Who completes a
    // kernel while both are full waits until one is taken, which is a copy of it.
    TRY(rocprofiler_create_buffer(records_context, BUFFER_NBYTES, WATERMARK_NBYTES, ROCPROFILER_BUFFER_POLICY_LOSSLESS,
                                  take_buffer, nullptr, &buffer));
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY})
        TRY(rocprofiler_configure_buffer_tracing_service(records_context, kind, nullptr, 0, buffer));
    TRY(rocprofiler_configure_callback_tracing_service(
        records_context, ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API, nullptr, 0, take_marker, nullptr));
    return 0;
}

int initialize(rocprofiler_client_finalize_t, void *)
{
    TRY(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, take_agents, sizeof(rocprofiler_agent_t),
                                           nullptr));
    if (configure_names() || configure_records())
        return -1;
    dp_add_source(&source);
    return dp_start("rocprofiler");
}

void finalize(void *) { dp_finish(); }

} // namespace

extern "C" DP_EXPORT rocprofiler_tool_configure_result_t *
rocprofiler_configure(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *client)
{
    static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, nullptr};
    const char *socket = getenv("DEEPPROF_SOCKET");
    client->name = "deepprof";
    return socket && *socket ? &result : nullptr;
}
