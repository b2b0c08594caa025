#ifndef MOCK_REGISTRATION_H
#define MOCK_REGISTRATION_H
#include <rocprofiler-sdk/rocprofiler.h>

struct rocprofiler_tool_configure_result_t {
    size_t size;
    int (*initialize)(rocprofiler_client_finalize_t, void *);
    void (*finalize)(void *);
    void *tool_data;
};
#endif
