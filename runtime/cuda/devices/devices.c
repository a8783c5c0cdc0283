/* devices.c - see devices.h: the figures. Memory is in MiB of nvidia-smi where a source has it. */
#include "runtime/cuda/devices/devices.h"

#include <stddef.h>

#define MIB  ((int64_t)1 << 20)
#define TERA 1e12
#define GIGA 1e9

static const struct cuda_description descriptions[CUDA_DEVICE_COUNT] = {
    [CUDA_DEVICE_T4] = {.name = "t4",
                        .product = "NVIDIA T4, 16 GB",
                        .source = "NVIDIA T4 data sheet and Turing white paper (TU104, 40 of 48 SMs)",
                        .capability = 75,
                        .sms = 40,
                        .clock_mhz = 1590,
                        .memory_bytes = 15360 * MIB,
                        .cache_bytes = 4 * MIB,
                        .memory_rate = 320 * GIGA,
                        .memory_bus_bits = 256,
                        .fp32 = 8.1 * TERA,
                        .fp16 = 65 * TERA,
                        .pcie = 16 * GIGA},
    [CUDA_DEVICE_A100] = {.name = "a100",
                          .product = "NVIDIA A100 SXM4, 80 GB",
                          .source = "NVIDIA A100 data sheet and Ampere white paper (GA100, 108 SMs)",
                          .capability = 80,
                          .sms = 108,
                          .clock_mhz = 1410,
                          .memory_bytes = 81920 * MIB,
                          .cache_bytes = 40 * MIB,
                          .memory_rate = 2039 * GIGA,
                          .memory_bus_bits = 5120,
                          .fp32 = 19.5 * TERA,
                          .tf32 = 156 * TERA,
                          .fp16 = 312 * TERA,
                          .bf16 = 312 * TERA,
                          .nvlink = 300 * GIGA,
                          .pcie = 32 * GIGA},
    [CUDA_DEVICE_H100] = {.name = "h100",
                          .product = "NVIDIA H100 SXM5, 80 GB",
                          .source = "NVIDIA H100 data sheet and Hopper white paper (GH100, 132 SMs)",
                          .capability = 90,
                          .sms = 132,
                          .clock_mhz = 1980,
                          .memory_bytes = 81559 * MIB,
                          .cache_bytes = 50 * MIB,
                          .memory_rate = 3350 * GIGA,
                          .memory_bus_bits = 5120,
                          .fp32 = 67 * TERA,
                          .tf32 = 494.7 * TERA,
                          .fp16 = 989.4 * TERA,
                          .bf16 = 989.4 * TERA,
                          .nvlink = 450 * GIGA,
                          .pcie = 64 * GIGA},
    [CUDA_DEVICE_H200] = {.name = "h200",
                          .product = "NVIDIA H200 SXM, 141 GB",
                          .source =
                              "NVIDIA H200 data sheet; memory, SMs and clock as nvidia-smi reports them",
                          .capability = 90,
                          .sms = 132,
                          .clock_mhz = 1980,
                          .memory_bytes = 143771 * MIB,
                          .cache_bytes = 50 * MIB,
                          .memory_rate = 4800 * GIGA,
                          .memory_bus_bits = 6144,
                          .fp32 = 67 * TERA,
                          .tf32 = 494.7 * TERA,
                          .fp16 = 989.4 * TERA,
                          .bf16 = 989.4 * TERA,
                          .nvlink = 450 * GIGA,
                          .pcie = 64 * GIGA},
    [CUDA_DEVICE_B200] = {.name = "b200",
                          .product = "NVIDIA B200 SXM, 180 GB, at 1,000 W",
                          .source = "NVIDIA HGX B200 data sheet; memory as nvidia-smi reports it",
                          .capability = 100,
                          .sms = 148,
                          .clock_mhz = 1965,
                          .memory_bytes = 183359 * MIB,
                          .cache_bytes = 126 * MIB,
                          .memory_rate = 8000 * GIGA,
                          .memory_bus_bits = 8192,
                          .fp32 = 80 * TERA,
                          .tf32 = 1100 * TERA,
                          .fp16 = 2250 * TERA,
                          .bf16 = 2250 * TERA,
                          .nvlink = 900 * GIGA,
                          .pcie = 64 * GIGA},
};

const struct cuda_description *cuda_description(int device)
{
    return device >= 0 && device < CUDA_DEVICE_COUNT ? &descriptions[device] : NULL;
}

/* Operations of a multiprocessor in a clock, without sparsity: NVIDIA's white papers of Turing, Ampere, Ada,
 * Hopper and Blackwell. Rates in 16 bits are of data-centre chips, with sums in fp32. */
static const struct chip {
    int capability, fp32, tf32, half, bf16;
    double pcie; /* bytes a second in each direction */
} chips[] = {
    {75, 128, 0, 1024, 0, 16 * GIGA},        {80, 128, 1024, 2048, 2048, 32 * GIGA},
    {86, 256, 512, 1024, 1024, 32 * GIGA},   {90, 256, 2048, 4096, 4096, 64 * GIGA},
    {100, 256, 4096, 8192, 8192, 64 * GIGA}, {120, 256, 512, 1024, 1024, 64 * GIGA},
};

/* The same chip with memory of the same size: H100 and H200 differ in nothing else. */
static bool is_of(const struct cuda_facts *facts, const struct cuda_description *d)
{
    const double ratio = (double)facts->memory_bytes / (double)d->memory_bytes;
    return facts->capability == d->capability && facts->sms == d->sms && ratio > 0.95 && ratio < 1.05;
}

bool cuda_describe(const struct cuda_facts *facts, struct cuda_description *out)
{
    const struct chip *chip = NULL;
    for (int i = 0; i < CUDA_DEVICE_COUNT; i++)
        if (is_of(facts, &descriptions[i])) {
            *out = descriptions[i];
            return true;
        }
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++)
        chip = chips[i].capability <= facts->capability ? &chips[i] : chip;
    if (!chip || facts->sms < 1 || facts->clock_mhz < 1 || !(facts->memory_rate > 0))
        return false;
    const double clocks = facts->sms * (facts->clock_mhz * 1e6);
    *out = (struct cuda_description){.product = facts->product,
                                     .source = "its driver",
                                     .capability = facts->capability,
                                     .sms = facts->sms,
                                     .clock_mhz = facts->clock_mhz,
                                     .memory_bytes = facts->memory_bytes,
                                     .memory_rate = facts->memory_rate,
                                     .fp32 = chip->fp32 * clocks,
                                     .tf32 = chip->tf32 * clocks,
                                     .fp16 = chip->half * clocks,
                                     .bf16 = chip->bf16 * clocks,
                                     .pcie = chip->pcie};
    return true;
}
