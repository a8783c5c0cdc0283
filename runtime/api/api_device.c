/* api_device.c - see api_trainer.h. */
#include "runtime/api/api_trainer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "runtime/world/decide.h"
#include "runtime/world/world.h"

/* ---- devices of this rank ---- */

/* Ranks are told apart by machines, which may have the same name: by the machine's boot, too. */
static int locate_gpu(const struct muster_cuda_module *module, int local_rank, char gpu[OFFER_GPU],
                      struct muster_error *err)
{
    scope_buffer boot = {0};
    char place[MUSTER_CUDA_PLACE];
    if (module->locate(local_rank, place, err))
        return -1;
    if (io_read_file("/proc/sys/kernel/random/boot_id", 64, &boot, NULL) < 0)
        buffer_clear(&boot); /* names alone, then */
    const int length = boot.length ? (int)strcspn(boot.data, "\n") : 0;
    (void)snprintf(gpu, OFFER_GPU, "%s of %.*s", place, length, length ? boot.data : ""); /* fits */
    return 0;
}

static bool find_nccl(const struct muster_cuda_module *module, struct muster_error *why)
{
    if (module->comm_nccl)
        return module->probe_nccl(why) == 0;
    (void)error_set(why, MUSTER_E_UNSUPPORTED, "this build of %s is without NCCL", MUSTER_CUDA_FILE);
    return false;
}

int api_device_find(const struct muster_trainer *t, int local_rank, struct api_found_device *found,
                    struct muster_error *err)
{
    const struct train_config *c = &t->config;
    struct rank_offer *offer = &found->offer;
    struct muster_error why = {0};
    if (api_described(t))
        return error_set(err, MUSTER_E_INVALID,
                         "training.device: %s describes a GPU for --plan and --suggest: train with cuda",
                         api_described(t)->name);
    if (device_choose((enum device_choice)c->device, &found->device, err) < 0)
        return -1;
    const struct muster_cuda_module *module = found->device.module;
    *offer = (struct rank_offer){.comm = (enum offer_comm)c->comm};
    if (gethostname(offer->host, sizeof offer->host - 1) < 0)
        (void)snprintf(offer->host, sizeof offer->host, "an unknown host");
    (void)snprintf(offer->device, sizeof offer->device, "%s", found->device.ops->name); /* ours: fits */
    if (!module)
        why = found->device.passed_over;
    else if (t->world_size > 1 && c->comm != TRAIN_COMM_HOST) {
        offer->nccl = find_nccl(module, &why);
        if (locate_gpu(module, local_rank, offer->gpu, err) < 0)
            return -1;
    }
    (void)snprintf(offer->missing, sizeof offer->missing, "%s", why.text); /* equal sizes */
    if (c->comm != TRAIN_COMM_NCCL || (module && (offer->nccl || t->world_size == 1)))
        return 0;
    if (!module)
        return error_set(err, MUSTER_E_INVALID,
                         "training.comm: nccl moves memory of GPUs only: set training.device: cuda, or leave "
                         "training.comm out");
    if (err)
        *err = why;
    return error_wrap(err, "training.comm: nccl");
}

/* ---- the choice of all ranks ---- */

/* On rank 0: "nccl", "host" or "host why". */
static int choose(void *context, const char *const *texts, int size, struct buffer *decision,
                  struct muster_error *err)
{
    scope_free struct rank_offer *offers = mem_calloc((size_t)size, sizeof *offers);
    struct comm_chosen chosen;
    (void)context;
    if (!offers)
        return error_set(err, MUSTER_E_NOMEM, "no memory for what %d ranks have", size);
    for (int r = 0; r < size; r++)
        if (offer_read(texts[r], &offers[r]) < 0)
            return error_set(err, MUSTER_E_PROTOCOL,
                             "rank %d does not report what it has: is it of this version?", r);
    if (offers_choose(offers, size, &chosen, err) < 0)
        return -1;
    return buffer_printf(decision, "%s %s", chosen.nccl ? "nccl" : "host", chosen.why);
}

int api_device_choose(struct muster_trainer *t, struct muster_world *world, struct trainer_options *options,
                      struct muster_error *err)
{
    static const char nccl[] = "nccl ", host[] = "host ";
    const struct agree_options everybody = {.store = options->store,
                                            .key = "trainer",
                                            .rank = options->rank,
                                            .size = options->world_size,
                                            .timeout_ns = world_timeout_ns(world)};
    scope_buffer mine = {0}, decision = {0};
    if (offer_print(&t->found.offer, &mine) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for this rank's devices");
    if (decide_together(&everybody, mine.data, choose, NULL, &decision, err) < 0)
        return -1;
    t->comm.nccl = !strncmp(decision.data, nccl, strlen(nccl));
    (void)snprintf(t->comm.why, sizeof t->comm.why, "%s", decision.data + strlen(host)); /* equal sizes */
    options->device = t->found.device.ops;
    options->comm = t->comm.nccl ? t->found.device.module->comm_nccl : NULL;
    return 0;
}

const char *muster_trainer_device(const struct muster_trainer *t, const char **passed_over)
{
    const struct muster_error *why = &t->found.device.passed_over;
    if (passed_over)
        *passed_over = why->code ? why->text : NULL;
    return t->found.device.ops->name;
}

const char *muster_trainer_values(const struct muster_trainer *t)
{
    return t->plan.value_dtype == DTYPE_BF16 ? "bf16" : t->plan.value_dtype == DTYPE_F16 ? "fp16" : "fp32";
}

const char *muster_trainer_attention(const struct muster_trainer *t)
{
    const char *text = trainer_attention(t->trainer);
    return *text ? text : NULL;
}

const char *muster_trainer_products(const struct muster_trainer *t, const char **library,
                                    const char **passed_over)
{
    const struct device_ops *ops = t->found.device.ops;
    if (library)
        *library = ops->host_memory ? kernels_cpu_library(trainer_kernels(t->trainer)) : ops->name;
    if (passed_over)
        *passed_over = t->products_not;
    if (t->plan.value_dtype != DTYPE_F32)
        return muster_trainer_values(t);
    return t->products == KERNELS_BF16                                            ? "bf16"
           : t->config.matmul_precision == TRAIN_MATMUL_TF32 && !ops->host_memory ? "tf32"
                                                                                  : "fp32";
}

const char *muster_trainer_comm(const struct muster_trainer *t, const char **passed_over)
{
    if (passed_over)
        *passed_over = *t->comm.why ? t->comm.why : NULL;
    return t->comm.nccl ? "nccl" : "host";
}
