#include <rocprofiler-sdk/rocprofiler.h>
