/* hang.cu - loaded before cudart into a program whose GPU is to hang: the HANG_AT-th launch of a kernel
 * (from 1) is preceded, on its stream, by a kernel that does nothing for HANG_SECONDS. A GPU cannot be told
 * to stop a kernel: a kernel without an end would outlive the test. */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>

static __global__ void day_hang(long long nanoseconds)
{
    long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begun < nanoseconds);
}

static int setting(const char *name, int otherwise)
{
    const char *value = getenv(name);
    return value ? atoi(value) : otherwise;
}

/* Before every launch. The hanging kernel is launched in the same way, but once. */
static void before_launch(cudaStream_t stream)
{
    static std::atomic<int> launches{0};
    static thread_local bool within = false;
    if (within || ++launches != setting("HANG_AT", 0))
        return;
    within = true;
    day_hang<<<1, 1, 0, stream>>>(1000000000LL * setting("HANG_SECONDS", 20));
    within = false;
    (void)fprintf(stderr, "hang: a kernel hangs before launch %d, %s\n", launches.load(),
                  cudaGetErrorName(cudaPeekAtLastError()));
}

/* The call that nvcc 13 makes of <<<>>>. */
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                          size_t shared, cudaStream_t stream)
{
    static const auto real =
        reinterpret_cast<decltype(&__cudaLaunchKernel)>(dlsym(RTLD_NEXT, "__cudaLaunchKernel"));
    if (!real) {
        (void)fprintf(stderr, "hang: no __cudaLaunchKernel of cudart\n");
        abort();
    }
    before_launch(stream);
    return real(kernel, grid, block, arguments, shared, stream);
}
