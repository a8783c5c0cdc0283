/* api_described.c - a plan for a GPU that is described (runtime/cuda/devices) and not here: its memory next
 * to the libraries of a run, and a step's least time by arithmetic. No driver is needed. */
#include <inttypes.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/api/api_trainer.h"
#include "runtime/plan/plan_cost.h"

const struct cuda_description *api_described(const struct muster_trainer *t)
{
    return cuda_description(t->config.device - DEVICE_CHOICE_COUNT);
}

enum plan_memory api_plan_memory(const struct muster_trainer *t)
{
    const bool gpu = t->config.device == DEVICE_CUDA || api_described(t) ||
                     (t->found.device.ops && !t->found.device.ops->host_memory);
    return gpu ? PLAN_MEMORY_DEVICE : PLAN_MEMORY_ALL;
}

int api_described_check(const struct muster_trainer *t, struct muster_error *err)
{
    const struct cuda_description *d = api_described(t);
    if (d && !d->bf16 && t->plan.value_dtype == DTYPE_BF16)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s (sm_%d) has no bf16, which begins with sm_80: set training.dtype: fp16, or leave "
            "training.values out",
            d->product, d->capability);
    if (d && !d->tf32 && t->config.matmul_precision == TRAIN_MATMUL_TF32)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s (sm_%d) has no tf32, which begins with sm_80: leave training.matmul_precision out",
            d->product, d->capability);
    return 0;
}

/* Bytes for the device's libraries: cuBLASLt, and NCCL where several ranks use it. */
struct libraries {
    int64_t products, comm;
};

static struct libraries libraries_of(const struct muster_trainer *t, int world_size)
{
    const struct muster_cuda_module *module = device_module_load(NULL); /* api_plan_sizes has loaded it */
    if (!module || !module->device->memory_kept)
        return (struct libraries){0};
    const int64_t products = module->device->memory_kept(NULL, false);
    const bool nccl = world_size > 1 && t->config.comm != TRAIN_COMM_HOST;
    return (struct libraries){products, nccl ? module->device->memory_kept(NULL, true) - products : 0};
}

int64_t api_described_memory(const struct muster_trainer *t, int world_size)
{
    const struct libraries l = libraries_of(t, world_size);
    const int64_t left = api_described(t)->memory_bytes - l.products - l.comm;
    return left > 0 ? left : 1;
}

int api_gpu_memory(const struct muster_trainer *t, int world_size, int64_t *bytes, struct muster_error *err)
{
    const struct muster_cuda_module *module = device_module_load(err);
    if (api_described(t)) {
        *bytes = api_described_memory(t, world_size);
        return 0;
    }
    struct cuda_facts facts;
    if (!module || module->facts(&facts, err) < 0)
        return -1;
    const struct libraries l = libraries_of(t, world_size);
    *bytes = facts.memory_bytes - l.products - l.comm;
    *bytes = *bytes > 0 ? *bytes : 1;
    return 0;
}

/* The rate of products in the arithmetic of the settings. */
static double rate_of(const struct muster_trainer *t, const struct cuda_description *d, enum dtype dtype,
                      const char **name)
{
    const bool tf32 = t->config.matmul_precision == TRAIN_MATMUL_TF32;
    *name = dtype == DTYPE_F32 && tf32 ? "tf32" : dtype_name(dtype);
    return dtype == DTYPE_BF16 ? d->bf16 : dtype == DTYPE_F16 ? d->fp16 : tf32 ? d->tf32 : d->fp32;
}

void api_rates(const struct muster_trainer *t, struct plan_rates *rates)
{
    const struct muster_cuda_module *module =
        api_plan_memory(t) == PLAN_MEMORY_DEVICE ? device_module_load(NULL) : NULL;
    struct cuda_description d = {0};
    struct cuda_facts facts;
    const char *type;
    char by[64] = "";
    *rates = plan_rates_nominal(t->config.threads ? (int)t->config.threads : 1);
    if (api_described(t))
        d = *api_described(t);
    else if (!module || module->facts(&facts, NULL) < 0 || !cuda_describe(&facts, &d))
        return;
    const double flops = rate_of(t, &d, t->plan.value_dtype, &type);
    if (!(flops > 0))
        return;
    *rates = plan_rates_of(flops, d.memory_rate, d.nvlink > 0 ? d.nvlink : d.pcie);
    if (!d.name)
        (void)snprintf(by, sizeof by, " (sm_%d, %d multiprocessors at %d MHz)", d.capability, d.sms,
                       d.clock_mhz); /* fits */
    (void)snprintf(rates->of, sizeof rates->of, "%s%s%s", api_described(t) ? "" : "this machine's GPU, ",
                   d.product, by); /* fits */
}

static void described_row(struct buffer *out, const char *name, int64_t bytes, const char *note)
{
    char text[32];
    (void)buffer_printf(out, "  %-15s %16" PRId64 "  %s%s%s\n", name, bytes,
                        text_format_bytes(text, sizeof text, bytes < 0 ? -bytes : bytes), *note ? "  " : "",
                        note);
}

/* "24 us", "25.8 ms", "1.52 s" */
static const char *time_text(char *out, size_t size, double seconds)
{
    if (seconds < 1e-3)
        (void)snprintf(out, size, "%.3g us", seconds * 1e6); /* all fit */
    else if (seconds < 1)
        (void)snprintf(out, size, "%.3g ms", seconds * 1e3);
    else
        (void)snprintf(out, size, "%.2f s", seconds);
    return out;
}

static void described_text(const struct muster_trainer *t, const struct plan *plan,
                           const struct plan_work *work, struct buffer *out)
{
    const struct cuda_description *d = api_described(t);
    const struct libraries l = libraries_of(t, plan->options.world_size);
    const int64_t arenas = plan_bytes_of(plan, PLAN_MEMORY_DEVICE);
    const int64_t left = d->memory_bytes - l.products - l.comm - arenas;
    const char *type;
    char products[32], passes[32];
    const double rate = rate_of(t, d, plan->options.value_dtype, &type);
    (void)buffer_printf(out, "bytes of an %s, which is described and not here (%s)\n", d->product, d->source);
    described_row(out, "memory", d->memory_bytes, "all of it: the driver's own part is not known");
    described_row(out, "plan", arenas, "device and comm");
    described_row(out, "cuBLASLt", l.products, "workspace and kernels, an allowance");
    if (l.comm)
        described_row(out, "NCCL", l.comm, "an allowance");
    described_row(out, "cuDNN", 0,
                  plan->options.kernels->attention_by ? "its workspace is in the plan (work)"
                                                      : "attention is by muster's own kernels");
    described_row(out, left < 0 ? "missing" : "left", left < 0 ? -left : left, "");
    if (rate > 0)
        (void)buffer_printf(
            out,
            "by arithmetic, no prediction: products take %s or more of a step, at the peak of "
            "%.4g TFLOP/s in %s, and the optimizer's passes %s, at %.4g GB/s\n",
            time_text(products, sizeof products, work->flops / rate), rate * 1e-12, type,
            time_text(passes, sizeof passes, work->bytes / d->memory_rate), d->memory_rate * 1e-9);
}

static void described_json(const struct muster_trainer *t, const struct plan *plan,
                           const struct plan_work *work, struct buffer *out)
{
    const struct cuda_description *d = api_described(t);
    const struct libraries l = libraries_of(t, plan->options.world_size);
    const int64_t arenas = plan_bytes_of(plan, PLAN_MEMORY_DEVICE);
    const char *type;
    const double rate = rate_of(t, d, plan->options.value_dtype, &type);
    (void)buffer_printf(out,
                        ",\n \"device\": {\"name\": \"%s\", \"memory\": %" PRId64 ", \"plan\": %" PRId64
                        ", \"cublaslt\": %" PRId64 ", \"nccl\": %" PRId64 ", \"cudnn\": 0, \"left\": %" PRId64
                        ",\n  \"products_in\": \"%s\", \"products_least_s\": %.6g, \"passes_least_s\": %.6g}",
                        d->name, d->memory_bytes, arenas, l.products, l.comm,
                        d->memory_bytes - l.products - l.comm - arenas, type,
                        rate > 0 ? work->flops / rate : 0, work->bytes / d->memory_rate);
}

int api_described_text(const struct muster_trainer *t, const struct plan *plan, int32_t format,
                       struct buffer *out, struct muster_error *err)
{
    struct plan_work work = {0};
    if (plan_count_work(&t->model, plan, &work, err) < 0)
        return -1;
    (api_plan_is_json(format) ? described_json : described_text)(t, plan, &work, out);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory to print the plan") : 0;
}
