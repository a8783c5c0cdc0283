/* slices.c - see slices.h. */
#include "runtime/train/recover/slices.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/recover/image.h"
#include "runtime/train/trainer_state.h"

/* Where each buffer of the plan begins in an image. */
static int64_t *find_offsets(const struct plan *plan)
{
    int64_t *offsets = mem_calloc((size_t)plan->entry_count + 1, sizeof *offsets), at = 0;
    for (int g = 0; offsets && g < plan->group_count; g++) {
        int entries[PLAN_STATE_ENTRIES];
        const int count = plan_state_entries(&plan->groups[g], entries);
        for (int i = 0; i < count; i++) {
            offsets[entries[i]] = at;
            at += plan->entries[entries[i]].bytes;
        }
    }
    return offsets;
}

static int list(const struct trainer *then, const int64_t *offsets, bool values, bool all, struct slices *out)
{
    enum { TENSORS = TRAINER_AVERAGE + 1 };
    out->list = mem_calloc((size_t)then->model->param_count * TENSORS + 1, sizeof *out->list);
    for (int param = 0; out->list && param < then->model->param_count; param++)
        for (int tensor = TRAINER_VALUE; tensor < TENSORS; tensor++) {
            struct trainer_part part;
            if ((tensor == TRAINER_VALUE) != values ||
                !trainer_part(then, param, (enum trainer_tensor)tensor, &part) || part.entry < 0 ||
                !part.count || (!all && part.copy))
                continue;
            out->list[out->count++] =
                (struct slice){.tensor = tensor,
                               .param = param,
                               .dtype = (int32_t)part.dtype,
                               .first = part.first,
                               .count = part.count,
                               .offset = offsets[part.entry] + part.at * dtype_size(part.dtype)};
        }
    return out->list ? 0 : -1;
}

int slices_list(const struct trainer *now, const struct recover_kept *kept, int then, bool values, bool all,
                struct slices *out, struct muster_error *err)
{
    const size_t layers = (size_t)now->model->layer_count;
    struct model model = *now->model;
    scope_free struct layer_desc *marked = mem_calloc(layers + 1, sizeof *marked);
    struct trainer shadow = {.model = &model};
    struct plan_options options = kept->options;
    *out = (struct slices){0};
    options.rank = then;
    options.kernels = now->kernels;
    options.table = now->plan.options.table;
    if (!marked)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a model of %zu layers", layers);
    memcpy(marked, model.layers, layers * sizeof *marked);
    for (size_t l = 0; l < layers; l++)
        marked[l].part = kept->parts[l];
    model.layers = marked;
    if (plan_build(&model, &options, &shadow.plan, err) < 0)
        return -1;
    scope_free int64_t *offsets = find_offsets(&shadow.plan);
    int result = offsets ? list(&shadow, offsets, values, all, out) : -1;
    if (result < 0)
        result = error_set(err, MUSTER_E_NOMEM, "no memory for the places of a state");
    else if (shadow.plan.asked != kept->layout || image_bytes(&shadow.plan) != kept->bytes)
        result = error_set(
            err, MUSTER_E_STATE,
            "the state that was kept does not have the layout of its plan (%lld bytes, planned %lld)",
            (long long)kept->bytes, (long long)image_bytes(&shadow.plan));
    plan_free(&shadow.plan);
    return result < 0 ? -1 : 0;
}
