/* devices.cpp - how many devices there are, of which driver, and which one a thread uses. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/cudart/fake_internal.h"

static thread_local int current;

int fake_device()
{
    return current;
}

void fake_device_use(int device)
{
    current = device;
}

static int number_of(const char *name, int otherwise)
{
    const char *value = fake_setting(name);
    return *value ? atoi(value) : otherwise;
}

int fake_devices()
{
    const int count = number_of("FAKE_CUDA_DEVICES", 1);
    return count < FAKE_DEVICES ? count : FAKE_DEVICES;
}

cudaError_t fake_driver()
{
    if (number_of("FAKE_CUDA_DRIVER", CUDART_VERSION) / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return fake_devices() ? cudaSuccess : cudaErrorNoDevice;
}

extern "C" {

int fake_cudart_device(void)
{
    return current;
}

void fake_cudart_use(int device)
{
    current = device;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    FAKE_ENTER("cudaDriverGetVersion", cudaErrorInvalidValue);
    *version = number_of("FAKE_CUDA_DRIVER", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    FAKE_ENTER("cudaRuntimeGetVersion", cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    FAKE_ENTER("cudaGetDeviceCount", cudaErrorInitializationError);
    const cudaError_t error = fake_driver();
    *count = error == cudaSuccess ? fake_devices() : 0;
    return error == cudaSuccess ? cudaSuccess : fake_cudart_fail(error);
}

cudaError_t cudaSetDevice(int device)
{
    FAKE_ENTER("cudaSetDevice", cudaErrorInvalidDevice);
    if (fake_driver() != cudaSuccess)
        return fake_cudart_fail(fake_driver());
    if (device < 0 || device >= fake_devices())
        return fake_cudart_fail(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    FAKE_ENTER("cudaGetDevice", cudaErrorInitializationError);
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    FAKE_ENTER("cudaGetDeviceProperties", cudaErrorInvalidDevice);
    if (device < 0 || device >= fake_devices())
        return fake_cudart_fail(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    const bool small = number_of("FAKE_CUDA_SMALL", -1) == device;
    snprintf(properties->name, sizeof properties->name, "a %sfake of muster's tests", small ? "small " : "");
    properties->major = number_of("FAKE_CUDA_MAJOR", 9);
    properties->pciBusID = device + 1;
    properties->totalGlobalMem = fake_device_bytes() / (small ? 2 : 1);
    properties->multiProcessorCount = FAKE_MULTIPROCESSORS / (small ? 2 : 1);
    properties->maxThreadsPerBlock = 1024;
    properties->sharedMemPerBlock = 48 << 10;
    properties->warpSize = 32;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    FAKE_ENTER("cudaDeviceGetAttribute", cudaErrorInvalidValue);
    if (device < 0 || device >= fake_devices())
        return fake_cudart_fail(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        return cudaSuccess;
    case cudaDevAttrClockRate:
        *value = number_of("FAKE_CUDA_CLOCK", 1980000);
        return cudaSuccess;
    case cudaDevAttrMemoryClockRate:
        *value = 2619000;
        return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 5120;
        return cudaSuccess;
    default:
        return fake_cudart_fail(cudaErrorNotSupported);
    }
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    FAKE_ENTER("cudaDeviceGetStreamPriorityRange", cudaErrorInvalidValue);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
}
