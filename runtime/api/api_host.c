/* api_host.c - the part of a GPU's plan that is in its node's memory, held against the memory of this
 * machine.
 */
#include <inttypes.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/api/api_trainer.h"
#include "runtime/device/host_memory.h"
#include "runtime/plan/plan_cost.h"
#include "runtime/plan/plan_stages.h"

/* GPUs of a node whose GPUs are described: as many as a board of NVIDIA's has. */
enum { NODE_GPUS = 8 };

void api_host(const struct muster_trainer *t, int world_size, struct api_host *host)
{
    const struct muster_cuda_module *module = api_described(t) ? NULL : device_module_load(NULL);
    struct cuda_facts facts;
    *host = (struct api_host){.ranks = 1};
    if (api_plan_memory(t) != PLAN_MEMORY_DEVICE)
        return;
    int gpus = api_described(t) ? NODE_GPUS : 1;
    if (module && module->facts(&facts, NULL) == 0 && facts.count > 0)
        gpus = facts.count;
    host->ranks = world_size < gpus ? world_size : gpus;
    host->bytes = host_memory_available() / host->ranks;
}

static void host_text(const struct api_host *host, int64_t planned, int64_t copy, struct buffer *out)
{
    char text[32], more[32], all[32], here[32];
    (void)buffer_printf(out, "the node's memory: a rank takes %s, pinned and host",
                        text_format_bytes(text, sizeof text, planned));
    if (copy)
        (void)buffer_printf(out, ", and %s for the copy of a checkpoint",
                            text_format_bytes(more, sizeof more, copy));
    if (host->ranks > 1)
        (void)buffer_printf(out, "; %d ranks of a node take %s", host->ranks,
                            text_format_bytes(all, sizeof all, host->ranks * (planned + copy)));
    if (host->bytes)
        (void)buffer_printf(out, "; this machine has %s available",
                            text_format_bytes(here, sizeof here, host->ranks * host->bytes));
    (void)buffer_text(out, "\n");
}

static void host_json(const struct api_host *host, int64_t planned, int64_t copy, struct buffer *out)
{
    (void)buffer_printf(out,
                        ",\n \"host\": {\"plan\": %" PRId64 ", \"checkpoint_copy\": %" PRId64
                        ", \"ranks\": %d, \"node\": %" PRId64 ", \"available\": %" PRId64 "}",
                        planned, copy, host->ranks, host->ranks * (planned + copy),
                        host->ranks * host->bytes);
}

/* Of the stage that takes most: a node may have any of them. */
int api_host_text(const struct muster_trainer *t, int world_size, int32_t format, struct buffer *out,
                  struct muster_error *err)
{
    const bool saves = t->config.checkpoint_dir && *t->config.checkpoint_dir;
    struct plan_stages stages = {0};
    struct plan_rates rates;
    struct api_host host;
    int64_t most = -1, planned = 0, copy = 0;
    int largest = 0;
    if (plan_stages_build(&t->model, &t->plan, &stages, err) < 0)
        return -1;
    for (int s = 0; s < stages.count; s++) {
        const int64_t here = plan_bytes_of(&stages.plans[s], PLAN_MEMORY_HOST),
                      saved = saves ? plan_saved_bytes(&t->model, &stages.plans[s]) : 0;
        if (here + saved <= most)
            continue;
        largest = s;
        planned = here;
        copy = saved;
        most = here + saved;
    }
    api_host(t, world_size, &host);
    (api_plan_is_json(format) ? host_json : host_text)(&host, planned, copy, out);
    struct muster_error why = {0};
    char is[80] = "is all that this machine has for it";
    if (host.ranks > 1)
        (void)snprintf(is, sizeof is, "is all that this machine has for each of %d ranks", host.ranks);
    api_rates(t, &rates);
    const struct plan_room room = {.memory = PLAN_MEMORY_HOST,
                                   .bytes = host.bytes,
                                   .is = is,
                                   .other = api_described(t) ? api_described_memory(t, world_size) : 0,
                                   .rates = &rates};
    if (!api_plan_is_json(format) && host.bytes &&
        plan_fits(&t->model, &stages.plans[largest], &room, &why) < 0)
        (void)buffer_printf(out, "warning: on a node like this machine %s\n", why.text);
    else if (!api_plan_is_json(format) && host.bytes && most > host.bytes)
        (void)buffer_text(out,
                          "warning: on a node like this machine there is no room for the copy of a "
                          "checkpoint: steps would wait until it is written; use more ranks or nodes, or "
                          "fewer ranks a node\n");
    plan_stages_free(&stages);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory to print the plan") : 0;
}
