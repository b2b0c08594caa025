// Kernels whose accesses are known to the byte; prints where their arrays lie, as JSON.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

constexpr size_t NBYTES = 32u << 20, COUNT = NBYTES / sizeof(float), ROWS = 7, ROW = 256, STRIDE = COUNT / 8;
constexpr unsigned THREADS = 256, BULK_NBYTES = 4096;

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}
#define CHECK(call) check(call, #call)

static __device__ size_t index_of() { return blockIdx.x * (size_t)blockDim.x + threadIdx.x; }

extern "C" __global__ void known_copy(float *target, const float *source) { target[index_of()] = source[index_of()]; }

extern "C" __global__ void known_vectors(float4 *target, const float4 *source)
{
    target[index_of()] = source[index_of()];
}

extern "C" __global__ void known_third(float *values)
{
    if (index_of() < COUNT / 3)
        values[index_of()] += 1;
}

// A block of threads a row: rows lie far apart in the table.
extern "C" __global__ void known_gather(float *target, const float *table)
{
    target[index_of()] = table[blockIdx.x * STRIDE + threadIdx.x];
}

// Each thread of a block its own sum: those of one address would be added up first.
extern "C" __global__ void known_atomics(int *sums) { atomicAdd(&sums[threadIdx.x], 1); }

// Two threads of three are switched off, and the others go different ways.
extern "C" __global__ void known_branches(float *target, const double *source)
{
    size_t i = index_of();
    if (i % 3)
        return;
    if (i % 2)
        target[i] = 1;
    else
        target[i] = (float)source[i / 2];
}

extern "C" __global__ void known_nothing(int never)
{
    __shared__ int shared[THREADS];
    shared[threadIdx.x] = never;
    __syncthreads();
    if (shared[(threadIdx.x + 1) % THREADS])
        asm volatile("trap;");
}

// Past the registers; from Ampere on.
extern "C" __global__ void known_async(float *target, const float *source)
{
#if __CUDA_ARCH__ >= 800
    __shared__ alignas(16) float shared[THREADS * 4];
    unsigned there = (unsigned)__cvta_generic_to_shared(&shared[threadIdx.x * 4]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(there), "l"(source + 4 * index_of()) : "memory");
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (shared[threadIdx.x * 4] == -1)
        target[0] = 0;
#endif
}

// One thread copies what its block gets; from Hopper on. The wait ends even if the copy does not.
extern "C" __global__ void known_bulk(float *target, const char *source)
{
#if __CUDA_ARCH__ >= 900
    __shared__ alignas(128) char shared[BULK_NBYTES];
    __shared__ alignas(8) uint64_t barrier;
    unsigned there = (unsigned)__cvta_generic_to_shared(shared), bar = (unsigned)__cvta_generic_to_shared(&barrier);
    if (threadIdx.x)
        return;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(BULK_NBYTES) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there),
                 "l"(source + blockIdx.x * (size_t)BULK_NBYTES), "r"(BULK_NBYTES), "r"(bar)
                 : "memory");
    unsigned is_done = 0;
    for (int i = 0; i < 100000 && !is_done; i++)
        asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, done;\n}"
                     : "=r"(is_done)
                     : "r"(bar)
                     : "memory");
    if (shared[0] == 7)
        target[0] = 0;
#endif
}

int main()
{
    float *x, *y;
    int *sums, found[THREADS], total = 0;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaMalloc(&x, NBYTES));
    CHECK(cudaMalloc(&y, NBYTES));
    CHECK(cudaMalloc(&sums, sizeof found));
    CHECK(cudaMemset(x, 0, NBYTES));
    CHECK(cudaMemset(sums, 0, sizeof found));
    CHECK(cudaStreamCreate(&stream));
    known_copy<<<COUNT / THREADS, THREADS>>>(y, x);
    known_vectors<<<COUNT / THREADS / 4, THREADS>>>((float4 *)y, (const float4 *)x);
    known_third<<<COUNT / THREADS, THREADS, 0, stream>>>(x);
    CHECK(cudaStreamSynchronize(stream));
    known_gather<<<ROWS, ROW>>>(y, x);
    known_atomics<<<COUNT / THREADS / 64, THREADS>>>(sums);
    known_branches<<<COUNT / THREADS, THREADS>>>(y, (const double *)x);
    known_nothing<<<4, THREADS>>>(0);
    known_async<<<COUNT / THREADS / 4, THREADS>>>(y, x);
    known_bulk<<<NBYTES / BULK_NBYTES, 32>>>(y, (const char *)x);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(y, x, NBYTES, cudaMemcpyDeviceToDevice));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 3; i++)
        known_copy<<<COUNT / THREADS, THREADS, 0, stream>>>(y, x);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < THREADS; i++)
        total += found[i];
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("{\"x\": %llu, \"y\": %llu, \"sums\": %llu, \"total\": %d, \"major\": %d}\n", (unsigned long long)(uintptr_t)x,
           (unsigned long long)(uintptr_t)y, (unsigned long long)(uintptr_t)sums, total, device.major);
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    CHECK(cudaFree(sums));
    return 0;
}
