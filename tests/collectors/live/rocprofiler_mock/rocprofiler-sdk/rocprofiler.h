// What the tool for AMD GPUs uses of rocprofiler-sdk, in our own words. The layouts are not the SDK's: what is built with
// this runs with mock.cpp beside it and with nothing else.
#ifndef MOCK_ROCPROFILER_H
#define MOCK_ROCPROFILER_H
#include <cstddef>
#include <cstdint>

enum rocprofiler_status_t { ROCPROFILER_STATUS_SUCCESS, ROCPROFILER_STATUS_ERROR };
enum rocprofiler_agent_version_t { ROCPROFILER_AGENT_INFO_VERSION_0 };
enum rocprofiler_agent_type_t { ROCPROFILER_AGENT_TYPE_CPU, ROCPROFILER_AGENT_TYPE_GPU };
enum rocprofiler_buffer_policy_t {
    ROCPROFILER_BUFFER_POLICY_NONE, ROCPROFILER_BUFFER_POLICY_DISCARD, ROCPROFILER_BUFFER_POLICY_LOSSLESS
};
enum { ROCPROFILER_BUFFER_CATEGORY_TRACING = 1 };
enum rocprofiler_buffer_tracing_kind_t {
    ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY
};
enum rocprofiler_callback_tracing_kind_t {
    ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API
};
enum rocprofiler_memory_copy_operation_t {
    ROCPROFILER_MEMORY_COPY_NONE, ROCPROFILER_MEMORY_COPY_HOST_TO_HOST, ROCPROFILER_MEMORY_COPY_HOST_TO_DEVICE,
    ROCPROFILER_MEMORY_COPY_DEVICE_TO_HOST, ROCPROFILER_MEMORY_COPY_DEVICE_TO_DEVICE
};
enum { ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER = 2 };
enum { ROCPROFILER_CALLBACK_PHASE_ENTER = 1, ROCPROFILER_CALLBACK_PHASE_LOAD = 1 };
enum { ROCPROFILER_MARKER_CORE_API_ID_roctxRangePushA = 1, ROCPROFILER_MARKER_CORE_API_ID_roctxRangePop };

struct rocprofiler_context_id_t { uint64_t handle; };
struct rocprofiler_buffer_id_t { uint64_t handle; };
struct rocprofiler_agent_id_t { uint64_t handle; };
struct rocprofiler_queue_id_t { uint64_t handle; };
struct rocprofiler_correlation_id_t { uint64_t internal; };
typedef uint64_t rocprofiler_timestamp_t;
typedef int rocprofiler_tracing_operation_t;
union rocprofiler_user_data_t { uint64_t value; };
struct rocprofiler_agent_t { rocprofiler_agent_id_t id; rocprofiler_agent_type_t type; int32_t logical_node_type_id; };
struct rocprofiler_record_header_t { uint32_t category, kind; void *payload; };
struct rocprofiler_kernel_dispatch_info_t {
    rocprofiler_agent_id_t agent_id; rocprofiler_queue_id_t queue_id; uint64_t kernel_id;
};
struct rocprofiler_buffer_tracing_kernel_dispatch_record_t {
    rocprofiler_correlation_id_t correlation_id; rocprofiler_timestamp_t start_timestamp, end_timestamp;
    rocprofiler_kernel_dispatch_info_t dispatch_info;
};
struct rocprofiler_buffer_tracing_memory_copy_record_t {
    rocprofiler_correlation_id_t correlation_id; rocprofiler_tracing_operation_t operation;
    rocprofiler_timestamp_t start_timestamp, end_timestamp; rocprofiler_agent_id_t dst_agent_id, src_agent_id;
    uint64_t bytes;
};
struct rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t {
    uint64_t kernel_id; const char *kernel_name;
};
struct rocprofiler_callback_tracing_marker_api_data_t {
    struct { struct { const char *message; } roctxRangePushA; } args;
};
struct rocprofiler_callback_tracing_record_t { uint32_t operation; int phase; void *payload; };
struct rocprofiler_client_id_t { const char *name; };

typedef void (*rocprofiler_client_finalize_t)(rocprofiler_client_id_t);
typedef void (*mock_take_buffer)(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t **, size_t,
                                 void *, uint64_t);
typedef void (*mock_take_callback)(rocprofiler_callback_tracing_record_t, rocprofiler_user_data_t *, void *);
typedef rocprofiler_status_t (*mock_take_agents)(rocprofiler_agent_version_t, const void **, size_t, void *);

extern "C" {
rocprofiler_status_t rocprofiler_get_timestamp(rocprofiler_timestamp_t *);
rocprofiler_status_t rocprofiler_flush_buffer(rocprofiler_buffer_id_t);
rocprofiler_status_t rocprofiler_create_context(rocprofiler_context_id_t *);
rocprofiler_status_t rocprofiler_start_context(rocprofiler_context_id_t);
rocprofiler_status_t rocprofiler_stop_context(rocprofiler_context_id_t);
rocprofiler_status_t rocprofiler_create_buffer(rocprofiler_context_id_t, size_t, size_t, rocprofiler_buffer_policy_t,
                                               mock_take_buffer, void *, rocprofiler_buffer_id_t *);
rocprofiler_status_t rocprofiler_configure_buffer_tracing_service(rocprofiler_context_id_t,
                                                                  rocprofiler_buffer_tracing_kind_t,
                                                                  const rocprofiler_tracing_operation_t *, size_t,
                                                                  rocprofiler_buffer_id_t);
rocprofiler_status_t rocprofiler_configure_callback_tracing_service(rocprofiler_context_id_t,
                                                                    rocprofiler_callback_tracing_kind_t,
                                                                    const rocprofiler_tracing_operation_t *, size_t,
                                                                    mock_take_callback, void *);
rocprofiler_status_t rocprofiler_query_available_agents(rocprofiler_agent_version_t, mock_take_agents, size_t, void *);
}
#endif
