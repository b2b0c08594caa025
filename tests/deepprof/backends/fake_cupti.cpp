// A driver and a libcupti with the range profiler, for machines without a GPU: compiled against NVIDIA's own headers, so
// that it reads what it is given as the real one does. It refuses what is out of order, and remembers who called.
//
// Work is asynchronous: fake_move() is done at the next cuCtxSynchronize(), and counts for the range that is open then.
#include <cuda.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { AVAILABLE = 24, CONFIG = 40, COUNTERS = 72, FILL = 0xA5 };

struct State {
    std::string calls;                   // a line each
    std::map<std::string, int> numbers;  // what a test sets
    std::map<std::string, int> open;     // what is held, and must be given back
    double waiting = 0, in_range = 0;
    const uint8_t *available = nullptr; // NVIDIA's host object keeps the caller's memory, and reads it later
    bool is_driver_ready = false, has_metrics = false, is_configured = false, is_decoded = false;
};

State state;
int context_place, host_place, profiler_place;
CUcontext const CONTEXT = reinterpret_cast<CUcontext>(&context_place);
CUpti_Profiler_Host_Object *const HOST = reinterpret_cast<CUpti_Profiler_Host_Object *>(&host_place);
CUpti_RangeProfiler_Object *const PROFILER = reinterpret_cast<CUpti_RangeProfiler_Object *>(&profiler_place);

int number(const std::string &name, int otherwise) { return state.numbers.count(name) ? state.numbers[name] : otherwise; }

// Notes a call, and returns what a test wants of it, or that it comes where it must not.
int enter(const char *name, bool is_right)
{
    state.calls += std::string(name) + "\n";
    int wanted = number(name, 0);
    if (!wanted && !is_right)
        state.calls += "! out of order or wrong: " + std::string(name) + "\n";
    return wanted ? wanted : is_right ? 0 : CUPTI_ERROR_INVALID_PARAMETER;
}

bool is_open(const char *what) { return state.open[what] == 1; }

int take(const char *what, int result)
{
    state.open[what] += result == 0;
    return result;
}

int give(const char *what, int result)
{
    state.open[what] -= result == 0;
    return result;
}

bool are_metrics(const char **names, size_t count)
{
    return count == 1 && !std::strcmp(names[0], "dram__bytes.sum");
}

bool is_filled(const uint8_t *bytes, size_t size)
{
    return bytes && bytes[0] == FILL && bytes[size - 1] == FILL;
}

}  // namespace

API void fake_reset() { state = State(); }
API void fake_set(const char *name, int value) { state.numbers[name] = value; }
API const char *fake_calls() { return state.calls.c_str(); }
API void fake_move(double nbytes) { state.waiting += nbytes; }
API int fake_open()
{
    int sum = 0;
    for (const auto &each : state.open)
        sum += each.second < 0 ? 1000 : each.second;
    return sum;
}

// ---- the driver ----

#define DRIVER(name, is_right) enter(#name, is_right)

API CUresult cuInit(unsigned)
{
    int result = DRIVER(cuInit, true);
    state.is_driver_ready = result == 0;
    return CUresult(result);
}

API CUresult cuDeviceGetCount(int *count)
{
    *count = number("devices", 1);
    return CUresult(DRIVER(cuDeviceGetCount, state.is_driver_ready));
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = CONTEXT;
    return CUresult(take("retained", DRIVER(cuDevicePrimaryCtxRetain, device == 0 && state.is_driver_ready)));
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device)  // cuda.h makes _v2 of it
{
    return CUresult(give("retained", DRIVER(cuDevicePrimaryCtxRelease_v2, device == 0 && is_open("retained"))));
}

API CUresult cuCtxPushCurrent(CUcontext context)
{
    return CUresult(take("current", DRIVER(cuCtxPushCurrent_v2, context == CONTEXT && is_open("retained"))));
}

API CUresult cuCtxPopCurrent(CUcontext *context)
{
    *context = CONTEXT;
    return CUresult(give("current", DRIVER(cuCtxPopCurrent_v2, is_open("current"))));
}

API CUresult cuCtxSynchronize()
{
    int result = DRIVER(cuCtxSynchronize, is_open("current"));
    if (!result) {
        state.in_range += is_open("range") ? state.waiting : 0;
        state.waiting = 0;
    }
    return CUresult(result);
}

// ---- CUPTI ----

// Defines a function with its own structure of parameters; a caller's may be that of an older version, never a newer one.
#define FUNCTION(name, type)                                                                             \
    static int name##_is(type *p);                                                                       \
    API CUptiResult name(type *p)                                                                        \
    {                                                                                                    \
        bool is_whole = p && p->structSize > 0 && p->structSize <= type##_STRUCT_SIZE && !p->pPriv;      \
        return is_whole ? CUptiResult(name##_is(p)) : CUptiResult(enter(#name, false));                  \
    }                                                                                                    \
    static int name##_is([[maybe_unused]] type *p)

FUNCTION(cuptiProfilerInitialize, CUpti_Profiler_Initialize_Params)
{
    return take("initialized", enter("cuptiProfilerInitialize", is_open("current")));
}

FUNCTION(cuptiProfilerDeInitialize, CUpti_Profiler_DeInitialize_Params)
{
    bool is_last = !is_open("host") || number("cuptiProfilerHostDeinitialize", 0);
    return give("initialized", enter("cuptiProfilerDeInitialize", is_open("initialized") && is_last));
}

FUNCTION(cuptiProfilerDeviceSupported, CUpti_Profiler_DeviceSupported_Params)
{
    auto level = [](const char *name) {
        return CUpti_Profiler_Support_Level(number(name, CUPTI_PROFILER_CONFIGURATION_SUPPORTED));
    };
    p->isSupported = level("isSupported"), p->architecture = level("architecture"), p->sli = level("sli");
    p->vGpu = level("vGpu"), p->confidentialCompute = level("confidentialCompute"), p->cmp = level("cmp");
    p->wsl = level("wsl");
    bool is_right = p->cuDevice == 0 && p->api == CUPTI_PROFILER_RANGE_PROFILING && is_open("initialized");
    return enter("cuptiProfilerDeviceSupported", is_right);
}

FUNCTION(cuptiDeviceGetChipName, CUpti_Device_GetChipName_Params)
{
    p->pChipName = "MADE1";
    return enter("cuptiDeviceGetChipName", p->deviceIndex == 0 && is_open("initialized"));
}

FUNCTION(cuptiProfilerGetCounterAvailability, CUpti_Profiler_GetCounterAvailability_Params)
{
    bool is_right = p->ctx == CONTEXT && is_open("initialized");
    if (p->pCounterAvailabilityImage && p->counterAvailabilityImageSize == AVAILABLE)
        std::memset(p->pCounterAvailabilityImage, FILL, AVAILABLE);
    p->counterAvailabilityImageSize = AVAILABLE;
    return enter("cuptiProfilerGetCounterAvailability", is_right);
}

FUNCTION(cuptiProfilerHostInitialize, CUpti_Profiler_Host_Initialize_Params)
{
    bool is_right = p->profilerType == CUPTI_PROFILER_TYPE_RANGE_PROFILER && !std::strcmp(p->pChipName, "MADE1")
        && is_filled(p->pCounterAvailabilityImage, AVAILABLE);
    p->pHostObject = HOST;
    state.available = p->pCounterAvailabilityImage;
    return take("host", enter("cuptiProfilerHostInitialize", is_right));
}

FUNCTION(cuptiProfilerHostDeinitialize, CUpti_Profiler_Host_Deinitialize_Params)
{
    return give("host", enter("cuptiProfilerHostDeinitialize", p->pHostObject == HOST && is_open("host")));
}

FUNCTION(cuptiProfilerHostConfigAddMetrics, CUpti_Profiler_Host_ConfigAddMetrics_Params)
{
    bool is_right = p->pHostObject == HOST && is_open("host") && are_metrics(p->ppMetricNames, p->numMetrics)
        && is_filled(state.available, AVAILABLE);
    return enter("cuptiProfilerHostConfigAddMetrics", state.has_metrics = is_right);
}

FUNCTION(cuptiProfilerHostGetConfigImageSize, CUpti_Profiler_Host_GetConfigImageSize_Params)
{
    p->configImageSize = CONFIG;
    return enter("cuptiProfilerHostGetConfigImageSize", p->pHostObject == HOST && state.has_metrics);
}

FUNCTION(cuptiProfilerHostGetConfigImage, CUpti_Profiler_Host_GetConfigImage_Params)
{
    bool is_right = p->pHostObject == HOST && p->configImageSize == CONFIG && p->pConfigImage && state.has_metrics;
    if (is_right)
        std::memset(p->pConfigImage, FILL, CONFIG);
    return enter("cuptiProfilerHostGetConfigImage", is_right);
}

FUNCTION(cuptiProfilerHostGetNumOfPasses, CUpti_Profiler_Host_GetNumOfPasses_Params)
{
    p->numOfPasses = size_t(number("passes", 1));
    bool is_right = p->configImageSize == CONFIG && is_filled(p->pConfigImage, CONFIG);
    return enter("cuptiProfilerHostGetNumOfPasses", is_right);
}

FUNCTION(cuptiRangeProfilerEnable, CUpti_RangeProfiler_Enable_Params)
{
    p->pRangeProfilerObject = PROFILER;
    return take("enabled", enter("cuptiRangeProfilerEnable", p->ctx == CONTEXT && is_open("initialized")));
}

FUNCTION(cuptiRangeProfilerDisable, CUpti_RangeProfiler_Disable_Params)
{
    bool is_stopped = !is_open("started") || number("cuptiRangeProfilerStop", 0);
    bool is_right = p->pRangeProfilerObject == PROFILER && is_open("enabled") && is_stopped;
    return give("enabled", enter("cuptiRangeProfilerDisable", is_right));
}

FUNCTION(cuptiRangeProfilerGetCounterDataSize, CUpti_RangeProfiler_GetCounterDataSize_Params)
{
    bool is_right = p->pRangeProfilerObject == PROFILER && is_open("enabled")
        && are_metrics(p->pMetricNames, p->numMetrics) && p->maxNumOfRanges == 1 && p->maxNumRangeTreeNodes == 1;
    p->counterDataSize = COUNTERS;
    return enter("cuptiRangeProfilerGetCounterDataSize", is_right);
}

FUNCTION(cuptiRangeProfilerCounterDataImageInitialize, CUpti_RangeProfiler_CounterDataImage_Initialize_Params)
{
    bool is_right = p->pRangeProfilerObject == PROFILER && p->counterDataSize == COUNTERS && p->pCounterData;
    if (is_right)
        std::memset(p->pCounterData, FILL, COUNTERS);
    return enter("cuptiRangeProfilerCounterDataImageInitialize", is_right);
}

static uint8_t *counters; // where what is decoded goes

FUNCTION(cuptiRangeProfilerSetConfig, CUpti_RangeProfiler_SetConfig_Params)
{
    bool has_images = p->configSize == CONFIG && is_filled(p->pConfig, CONFIG) && p->counterDataImageSize == COUNTERS
        && is_filled(p->pCounterDataImage, COUNTERS);
    bool is_one_pass = p->range == CUPTI_UserRange && p->replayMode == CUPTI_UserReplay && p->maxRangesPerPass == 1
        && p->numNestingLevels == 1 && p->minNestingLevel == 1 && p->passIndex == 0 && p->targetNestingLevel == 1;
    counters = p->pCounterDataImage;
    state.is_configured = p->pRangeProfilerObject == PROFILER && is_open("enabled") && has_images && is_one_pass;
    return enter("cuptiRangeProfilerSetConfig", state.is_configured);
}

FUNCTION(cuptiRangeProfilerStart, CUpti_RangeProfiler_Start_Params)
{
    bool is_right = p->pRangeProfilerObject == PROFILER && state.is_configured;
    return take("started", enter("cuptiRangeProfilerStart", is_right));
}

FUNCTION(cuptiRangeProfilerPushRange, CUpti_RangeProfiler_PushRange_Params)
{
    bool is_right = p->pRangeProfilerObject == PROFILER && is_open("started") && *p->pRangeName;
    return take("range", enter("cuptiRangeProfilerPushRange", is_right));
}

FUNCTION(cuptiRangeProfilerPopRange, CUpti_RangeProfiler_PopRange_Params)
{
    return give("range", enter("cuptiRangeProfilerPopRange", p->pRangeProfilerObject == PROFILER && is_open("range")));
}

FUNCTION(cuptiRangeProfilerStop, CUpti_RangeProfiler_Stop_Params)
{
    p->isAllPassSubmitted = uint8_t(number("submitted", 1));
    bool is_right = p->pRangeProfilerObject == PROFILER && is_open("started");
    return give("started", enter("cuptiRangeProfilerStop", is_right));
}

FUNCTION(cuptiRangeProfilerDecodeData, CUpti_RangeProfiler_DecodeData_Params)
{
    p->numOfRangeDropped = size_t(number("dropped", 0));
    state.is_decoded = p->pRangeProfilerObject == PROFILER && !is_open("started") && is_open("enabled");
    if (state.is_decoded)
        std::memcpy(counters, &state.in_range, sizeof state.in_range);
    return enter("cuptiRangeProfilerDecodeData", state.is_decoded);
}

FUNCTION(cuptiRangeProfilerGetCounterDataInfo, CUpti_RangeProfiler_GetCounterDataInfo_Params)
{
    p->numTotalRanges = size_t(number("ranges", 1));
    bool is_right = p->pCounterDataImage == counters && p->counterDataImageSize == COUNTERS && state.is_decoded;
    return enter("cuptiRangeProfilerGetCounterDataInfo", is_right);
}

FUNCTION(cuptiProfilerHostEvaluateToGpuValues, CUpti_Profiler_Host_EvaluateToGpuValues_Params)
{
    bool is_right = p->pHostObject == HOST && is_open("host") && p->pCounterDataImage == counters
        && is_filled(state.available, AVAILABLE) && p->counterDataImageSize == COUNTERS && p->rangeIndex == 0 && are_metrics(p->ppMetricNames, p->numMetrics);
    if (is_right)
        std::memcpy(p->pMetricValues, p->pCounterDataImage, sizeof(double));
    if (number("nan", 0))
        *p->pMetricValues = std::nan("");
    return enter("cuptiProfilerHostEvaluateToGpuValues", is_right);
}

API CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_ERROR_HARDWARE ? "CUPTI_ERROR_HARDWARE" : nullptr;
    return *text ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
