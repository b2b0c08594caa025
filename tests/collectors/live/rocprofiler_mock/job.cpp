// A job for tests: loads the tool as the SDK does, and launches on the device of mock.cpp.
//
//   job WORD...    JOB_TOOL: the tool. Words are obeyed in turn: "kernels N", "copies N", "bad N", "ranges N", "hold",
//                  "release", "line" (says "ready", and waits for a line while ranges go on).
// It prints the records that the device kept, and those it dropped.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <thread>

#include <rocprofiler-sdk/registration.h>
#include "mock.h"

using configure = rocprofiler_tool_configure_result_t *(uint32_t, const char *, uint32_t, rocprofiler_client_id_t *);

static unsigned long kept;

static rocprofiler_tool_configure_result_t *load()
{
    void *tool = dlopen(getenv("JOB_TOOL"), RTLD_NOW);
    auto *function = tool ? reinterpret_cast<configure *>(dlsym(tool, "rocprofiler_configure")) : nullptr;
    if (!function) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    static rocprofiler_client_id_t client;
    auto *result = function(0, "made-up", 0, &client);
    if (!result || result->initialize(nullptr, nullptr))
        exit(4);
    return result;
}

// Ranges come all the time, as a job that is busy on the host writes them.
static void await_line()
{
    std::atomic<bool> is_over{false};
    std::thread busy([&] {
        while (!is_over)
            mock_range("busy");
    });
    puts("ready");
    fflush(stdout);
    int read = getchar();
    is_over = true;
    busy.join();
    if (read == EOF)
        exit(5);
}

static const char *const *obey(const char *const *words)
{
    const char *word = *words++;
    bool has_count = !strcmp(word, "kernels") || !strcmp(word, "copies") || !strcmp(word, "bad") || !strcmp(word, "ranges");
    for (long i = 0, count = has_count ? atol(*words++) : 0; i < count; i++) {
        if (!strcmp(word, "kernels")) kept += mock_launch(1 + i % 3) != 0;
        else if (!strcmp(word, "copies")) kept += mock_copy(static_cast<int>(i % 5), 100 + i) != 0;
        else if (!strcmp(word, "bad")) kept += mock_launch_badly() != 0;
        else mock_range("range");
    }
    if (!strcmp(word, "hold")) mock_hold(1);
    else if (!strcmp(word, "release")) mock_hold(0);
    else if (!strcmp(word, "line")) await_line();
    else if (!has_count) exit(2);
    return words;
}

int main(int, char **arguments)
{
    auto *tool = load();
    mock_load(1, "gemm.kd"); // as the SDK tells of kernels; the third is of a code object that nobody told of
    mock_load(2, "relu.kd");
    mock_await_start();
    for (const char *const *words = arguments + 1; *words;)
        words = obey(words);
    tool->finalize(nullptr);
    printf("%lu %lu\n", kept, mock_dropped());
    return 0;
}
