/* registration.cpp - the entry points that code from nvcc calls by itself: its binaries and kernels are
 * registered when the module is loaded, and <<<>>> is a push, a pop and a launch. The code in the binaries is
 * a GPU's and does not run here: a launch is checked, counted and enqueued as a piece of work that does
 * nothing. */
#include "tests/gpu/cudart/registration.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/cudart/fake_internal.h"

struct registered_kernel {
    std::string name;
    int launches = 0;
    size_t allowed = 48 * 1024; /* bytes of dynamic shared memory */
};

struct launch_configuration {
    dim3 grid, block;
    size_t shared;
    void *stream;
};

/* What nvcc puts before a binary. */
struct fat_binary {
    int32_t magic, version;
    const void *data;
    void *unused;
};
enum { FAT_BINARY_MAGIC = 0x466243b1 };

static std::map<const void *, struct registered_kernel> &kernels()
{
    static auto *const all =
        new std::map<const void *, struct registered_kernel>; /* constructors run early */
    return *all;
}
static thread_local std::vector<struct launch_configuration> pushed;

static void broken(const char *what)
{
    fprintf(stderr, "fake cudart: %s\n", what);
    abort();
}

extern "C" void **__cudaRegisterFatBinary(void *binary)
{
    const struct fat_binary *fat = (const struct fat_binary *)binary;
    if (!fat || fat->magic != FAT_BINARY_MAGIC || !fat->data)
        broken("__cudaRegisterFatBinary: this is no binary of nvcc's");
    return (void **)binary;
}

extern "C" void __cudaRegisterFatBinaryEnd(void **) {}

extern "C" void __cudaUnregisterFatBinary(void **) {}

extern "C" void __cudaRegisterFunction(void **binary, const char *host, char *, const char *name, int,
                                       uint3 *, uint3 *, dim3 *, dim3 *, int *)
{
    struct fake_locked locked;
    if (!binary || !host || !name || !*name)
        broken("__cudaRegisterFunction: a kernel without a binary, address or name");
    if (!kernels().insert({host, {name}}).second)
        broken("__cudaRegisterFunction: two kernels of one address");
}

extern "C" cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    struct fake_locked locked;
    auto found = kernels().find(host);
    if (found == kernels().end())
        return cudaErrorInvalidDeviceFunction;
    *kernel = (cudaKernel_t)&found->second;
    return cudaSuccess;
}

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    pushed.push_back({grid, block, shared, stream});
    return 0;
}

extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    if (pushed.empty())
        broken("__cudaPopCallConfiguration: nothing was pushed");
    *grid = pushed.back().grid;
    *block = pushed.back().block;
    *shared = pushed.back().shared;
    *(void **)stream = pushed.back().stream;
    pushed.pop_back();
    return cudaSuccess;
}

/* What all of compute capabilities 7.5 to 9.0 refuse. */
static bool is_refused(dim3 grid, dim3 block, size_t shared, size_t allowed)
{
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return !grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 ||
           threads == 0 || threads > 1024 || block.z > 64 || shared > allowed;
}

static void nothing(void *) {}

extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                                          size_t shared, cudaStream_t stream)
{
    struct registered_kernel *registered = (struct registered_kernel *)kernel;
    if (!registered || !arguments)
        return fake_cudart_fail(cudaErrorInvalidDeviceFunction);
    if (is_refused(grid, block, shared, registered->allowed))
        return fake_cudart_fail(cudaErrorInvalidConfiguration);
    {
        struct fake_locked locked;
        registered->launches++;
    }
    const cudaError_t error =
        fake_cudart_enqueue(stream, registered->name.c_str(), nothing, nullptr, nullptr);
    return error == cudaSuccess ? error : fake_cudart_fail(error);
}

/* A kernel is allowed more shared memory: up to what all from sm_80 on have. */
extern "C" cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value)
{
    cudaKernel_t kernel;
    const cudaError_t error = __cudaGetKernel(&kernel, host);
    if (error != cudaSuccess)
        return fake_cudart_fail(error);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 99 * 1024)
        return fake_cudart_fail(cudaErrorInvalidValue);
    struct fake_locked locked;
    ((struct registered_kernel *)kernel)->allowed = (size_t)value > 48 * 1024 ? (size_t)value : 48 * 1024;
    return cudaSuccess;
}

extern "C" cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream)
{
    cudaKernel_t kernel;
    const cudaError_t error = __cudaGetKernel(&kernel, host);
    return error == cudaSuccess ? __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream)
                                : fake_cudart_fail(error);
}

/* ---- for the test ---- */

extern "C" int fake_cudart_kernels(const char *part)
{
    struct fake_locked locked;
    int count = 0;
    for (const auto &kernel : kernels())
        count += strstr(kernel.second.name.c_str(), part) != nullptr;
    return count;
}

extern "C" int fake_cudart_launches(const char *part)
{
    struct fake_locked locked;
    int count = 0;
    for (const auto &kernel : kernels())
        if (strstr(kernel.second.name.c_str(), part))
            count += kernel.second.launches;
    return count;
}
