// A made-up rocprofiler-sdk without a GPU: the job that is linked with it launches through the functions at the end.
//
// Its buffers are as the SDK's, version 0.5: there are two, every flush swaps them, the second has room only for LOSSLESS,
// and a record that finds no room is counted in a total that is told with each buffer and never begins anew. Buffers are
// given on a thread of the SDK's own. MOCK_LEAKY: also a LOSSLESS buffer loses what it has no room for.
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include <rocprofiler-sdk/rocprofiler.h>
#include "mock.h"

namespace {

using kernel_record = rocprofiler_buffer_tracing_kernel_dispatch_record_t;
using copy_record = rocprofiler_buffer_tracing_memory_copy_record_t;

constexpr uint64_t GPU = 77, QUEUE = 500;
constexpr size_t RECORD_NBYTES = 128; // as large as the SDK's

struct record {
    uint32_t kind;
    union {
        kernel_record kernel;
        copy_record copy;
    };
};

struct half {
    size_t capacity = 0; // of records
    std::vector<record> records;
};

std::mutex &lock = *new std::mutex; // of all that follows; it outlives the process, whose thread below never ends
std::condition_variable &changed = *new std::condition_variable;
half halves[2];
size_t current, watermark;
bool lossless, is_flushing, is_held, is_started;
uint64_t dropped, launched;
mock_take_buffer give;
mock_take_callback symbols, markers;

rocprofiler_timestamp_t now()
{
    timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

void give_half(half &full, std::unique_lock<std::mutex> &held)
{
    std::vector<rocprofiler_record_header_t> headers;
    std::vector<rocprofiler_record_header_t *> places;
    for (auto &each : full.records)
        headers.push_back({ROCPROFILER_BUFFER_CATEGORY_TRACING, each.kind, &each.kernel});
    for (auto &header : headers)
        places.push_back(&header);
    uint64_t total = dropped;
    held.unlock();
    if (!places.empty())
        give({1}, {1}, places.data(), places.size(), nullptr, total);
    held.lock();
    full.records.clear();
}

[[noreturn]] void serve()
{
    std::unique_lock<std::mutex> held(lock);
    for (;;) {
        changed.wait(held, [] { return is_flushing && !is_held; });
        give_half(halves[1 - current], held);
        is_flushing = false;
        changed.notify_all();
    }
}

void flush(std::unique_lock<std::mutex> &held, bool waits)
{
    if (is_flushing && !waits)
        return;
    changed.wait(held, [] { return !is_flushing; });
    current = 1 - current;
    is_flushing = true;
    changed.notify_all();
    if (waits)
        changed.wait(held, [] { return !is_flushing; });
}

bool put(const record &made)
{
    std::unique_lock<std::mutex> held(lock);
    if (!is_started)
        return false;
    while (lossless && halves[current].records.size() == halves[current].capacity)
        flush(held, true);
    bool has_room = halves[current].records.size() < halves[current].capacity;
    if (has_room)
        halves[current].records.push_back(made);
    dropped += !has_room;
    if (halves[current].records.size() >= watermark)
        flush(held, false);
    return has_room;
}

rocprofiler_status_t start(bool is)
{
    std::lock_guard<std::mutex> held(lock);
    is_started = is;
    changed.notify_all();
    return ROCPROFILER_STATUS_SUCCESS;
}

} // namespace

// ---- what the tool calls ----

constexpr uint64_t RECORDS = 2; // the context that the tool makes after that of names

rocprofiler_status_t rocprofiler_get_timestamp(rocprofiler_timestamp_t *time)
{
    *time = now();
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_flush_buffer(rocprofiler_buffer_id_t)
{
    std::unique_lock<std::mutex> held(lock);
    flush(held, true);
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_create_context(rocprofiler_context_id_t *context)
{
    static uint64_t count;
    context->handle = ++count;
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_start_context(rocprofiler_context_id_t context)
{
    return context.handle == RECORDS ? start(true) : ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_stop_context(rocprofiler_context_id_t context)
{
    return context.handle == RECORDS ? start(false) : ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_create_buffer(rocprofiler_context_id_t, size_t nbytes, size_t watermark_nbytes,
                                               rocprofiler_buffer_policy_t policy, mock_take_buffer take, void *,
                                               rocprofiler_buffer_id_t *id)
{
    halves[0].capacity = nbytes / RECORD_NBYTES;
    halves[1].capacity = policy == ROCPROFILER_BUFFER_POLICY_LOSSLESS ? nbytes / RECORD_NBYTES : 0;
    lossless = policy == ROCPROFILER_BUFFER_POLICY_LOSSLESS && !getenv("MOCK_LEAKY");
    watermark = watermark_nbytes / RECORD_NBYTES;
    give = take;
    id->handle = 1;
    std::thread(serve).detach();
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_configure_buffer_tracing_service(rocprofiler_context_id_t,
                                                                  rocprofiler_buffer_tracing_kind_t,
                                                                  const rocprofiler_tracing_operation_t *, size_t,
                                                                  rocprofiler_buffer_id_t)
{
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_configure_callback_tracing_service(rocprofiler_context_id_t,
                                                                    rocprofiler_callback_tracing_kind_t kind,
                                                                    const rocprofiler_tracing_operation_t *, size_t,
                                                                    mock_take_callback take, void *)
{
    (kind == ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT ? symbols : markers) = take;
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t rocprofiler_query_available_agents(rocprofiler_agent_version_t version, mock_take_agents take, size_t,
                                                        void *data)
{
    rocprofiler_agent_t cpu = {{GPU - 1}, ROCPROFILER_AGENT_TYPE_CPU, 0}, gpu = {{GPU}, ROCPROFILER_AGENT_TYPE_GPU, 3};
    const void *agents[] = {&cpu, &gpu};
    return take(version, agents, 2, data);
}

// ---- what the job calls ----

void mock_await_start()
{
    std::unique_lock<std::mutex> held(lock);
    changed.wait(held, [] { return is_started; });
}

void mock_hold(int is)
{
    std::lock_guard<std::mutex> held(lock);
    is_held = is;
    changed.notify_all();
}

void mock_load(uint64_t kernel, const char *name)
{
    rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t data = {kernel, name};
    rocprofiler_callback_tracing_record_t made = {ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER,
                                                  ROCPROFILER_CALLBACK_PHASE_LOAD, &data};
    symbols(made, nullptr, nullptr);
}

int mock_launch(uint64_t kernel)
{
    record made = {ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, {}};
    uint64_t number = ++launched, start = now();
    made.kernel = {{number}, start, start + 5, {{GPU}, {QUEUE + number % 2}, kernel}};
    return put(made);
}

int mock_copy(int direction, uint64_t nbytes)
{
    record made = {ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, {}};
    uint64_t start = now();
    made.copy = {{++launched}, direction, start, start + 7, {GPU}, {GPU}, nbytes};
    return put(made);
}

int mock_launch_badly()
{
    record made = {ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, {}};
    made.kernel = {{++launched}, 0, 0, {{GPU}, {QUEUE}, 1}};
    return put(made);
}

void mock_range(const char *text)
{
    rocprofiler_callback_tracing_marker_api_data_t data = {{{text}}};
    rocprofiler_callback_tracing_record_t made = {ROCPROFILER_MARKER_CORE_API_ID_roctxRangePushA,
                                                  ROCPROFILER_CALLBACK_PHASE_ENTER, &data};
    markers(made, nullptr, nullptr);
    made.operation = ROCPROFILER_MARKER_CORE_API_ID_roctxRangePop;
    markers(made, nullptr, nullptr);
}

unsigned long mock_dropped()
{
    std::lock_guard<std::mutex> held(lock);
    return dropped;
}
