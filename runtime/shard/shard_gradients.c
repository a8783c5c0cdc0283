/* shard_gradients.c - memory for gradients before they are reduced: slots in COMM memory, which the other
 * ranks read. */
#include <string.h>
#include <sys/mman.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/shard/shard_internal.h"

/* Slots of a class that keep their pages; those with higher numbers give them back. */
enum { SLOTS_KEPT = 3 };

static int slots_of(const struct muster_shard *shard, const struct shard_class *slot)
{
    int wanted = shard->options.gradient_slots;
    return wanted < 0 || wanted > slot->trainable ? slot->trainable : wanted;
}

int shard_gradients_create(struct muster_shard *shard, struct muster_error *err)
{
    int64_t bytes = 0;
    int count = 0;
    for (int c = 0; c < shard->layout.class_count; c++)
        count += slots_of(shard, &shard->layout.classes[c]);
    if (!count)
        return 0; /* all frozen */
    shard->grad_slots = mem_calloc((size_t)count, sizeof *shard->grad_slots);
    if (!shard->grad_slots)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a list of %d gradient slots", count);
    for (int c = 0; c < shard->layout.class_count; c++) {
        const struct shard_class *slot = &shard->layout.classes[c];
        for (int i = 0; i < slots_of(shard, slot); i++, bytes += slot->gradient_bytes)
            shard->grad_slots[shard->grad_slot_count++] =
                (struct shard_grad_slot){.offset = bytes, .slot_class = c, .number = i, .group = -1};
    }
    return shard->ops->arena_create(shard->device, MEMORY_COMM, bytes, &shard->gradients, err)
               ? error_wrap(err, "%d gradient slots", count)
               : 0;
}

static int find_free(const struct muster_shard *shard, int slot_class)
{
    for (int i = 0; i < shard->grad_slot_count; i++) {
        if (shard->grad_slots[i].slot_class == slot_class && shard->grad_slots[i].group < 0)
            return i;
    }
    return -1;
}

/* The group of this class whose reduction began first; -1: none is being reduced. */
static int oldest(const struct muster_shard *shard, int slot_class)
{
    int found = -1;
    for (int i = 0; i < shard->grad_slot_count; i++) {
        int group = shard->grad_slots[i].group;
        if (shard->grad_slots[i].slot_class != slot_class || group < 0 ||
            shard->core.groups[group].grad != SHARD_GRAD_REDUCING)
            continue;
        if (found < 0 || (int32_t)(shard->runs[group].reduction - shard->runs[found].reduction) < 0)
            found = group;
    }
    return found;
}

static int none_free(const struct muster_shard *shard, int group, struct muster_error *err)
{
    const struct shard_layout *layout = &shard->layout;
    const char *holder = "?";
    int count = 0;
    for (int i = 0; i < shard->grad_slot_count; i++) {
        if (shard->grad_slots[i].slot_class == layout->groups[group].slot_class) {
            holder = layout->groups[shard->grad_slots[i].group].name;
            count++;
        }
    }
    return error_set(
        err, MUSTER_E_STATE,
        "no gradient slot is free for group %s: %d groups of its size, such as %s, hold gradients "
        "that were not reduced; reduce them, or set gradient_slots to -1 (or above %d)",
        layout->groups[group].name, count, holder, count);
}

int shard_gradients_take(struct muster_shard *shard, int group, struct muster_error *err)
{
    int slot_class = shard->layout.groups[group].slot_class, at = find_free(shard, slot_class);
    if (at < 0) {
        int other = oldest(shard, slot_class);
        if (other < 0)
            return none_free(shard, group, err);
        if (shard_tracker_wait(shard, &shard->reductions, shard->runs[other].reduction, err))
            return -1;
        shard_gradients_free(shard, other);
        shard_core_reduced(&shard->core, other);
        at = find_free(shard, slot_class);
    }
    shard->grad_slots[at].group = group;
    shard->runs[group].grad_slot = at;
    shard->grad_bytes_now += shard->layout.classes[slot_class].gradient_bytes;
    if (shard->grad_bytes < shard->grad_bytes_now)
        shard->grad_bytes = shard->grad_bytes_now;
    return 0;
}

void shard_gradients_free(struct muster_shard *shard, int group)
{
    int at = shard->runs[group].grad_slot;
    if (at < 0)
        return;
    struct shard_grad_slot *slot = &shard->grad_slots[at];
    int64_t bytes = shard->layout.classes[slot->slot_class].gradient_bytes;
    if (slot->number >= SLOTS_KEPT) /* if it fails, the pages stay */
        (void)madvise((char *)shard->gradients.base + slot->offset, (size_t)bytes, MADV_REMOVE);
    slot->group = -1;
    shard->runs[group].grad_slot = -1;
    shard->grad_bytes_now -= bytes;
}

char *shard_gradients_base(const struct muster_shard *shard, int group)
{
    return (char *)shard->gradients.base + shard->grad_slots[shard->runs[group].grad_slot].offset;
}

/* ---- muster_shard.h ---- */

static int check_trainable(const struct muster_shard *shard, int group, struct muster_error *err)
{
    if (shard_check_group(shard, group, err))
        return -1;
    if (!shard->layout.groups[group].frozen)
        return 0;
    return error_set(err, MUSTER_E_INVALID, "group %s is frozen: it has no gradients",
                     shard->layout.groups[group].name);
}

static char *gradient_of(const struct muster_shard *shard, const struct shard_param *param)
{
    return shard_gradients_base(shard, param->group) + param->offset * shard->layout.gradient_bytes;
}

void *muster_shard_gradient(struct muster_shard *shard, int parameter, struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return NULL;
    if (parameter < 0 || parameter >= shard->layout.param_count) {
        (void)error_set(err, MUSTER_E_INVALID, "parameter %d: parameters are 0 to %d", parameter,
                        shard->layout.param_count - 1);
        return NULL;
    }
    const struct shard_param *param = &shard->layout.params[parameter];
    if (check_trainable(shard, param->group, err))
        return NULL;
    shard_core_fill(&shard->core, param->group);
    return shard_act(shard, err) ? NULL : gradient_of(shard, param);
}

/* Puts every gradient of the group where it belongs. */
static void fill(struct muster_shard *shard, int group, const void *const *gradients)
{
    const struct shard_group *g = &shard->layout.groups[group];
    for (int i = 0; i < g->param_count; i++) {
        const struct shard_param *param = &shard->layout.params[g->first_param + i];
        size_t bytes = (size_t)(param->elements * shard->layout.gradient_bytes);
        char *to = gradient_of(shard, param);
        if (!gradients[i])
            memset(to, 0, bytes);
        else if (gradients[i] != to)
            memcpy(to, gradients[i], bytes);
        shard->has_gradient[g->first_param + i] |= gradients[i] != NULL;
    }
}

int muster_shard_reduce(struct muster_shard *shard, int group, const void *const *gradients,
                        struct muster_error *err)
{
    if (check_trainable(shard, group, err))
        return -1;
    shard_core_fill(&shard->core, group);
    if (shard_act(shard, err))
        return -1;
    fill(shard, group, gradients);
    shard_core_reduce(&shard->core, group);
    return shard_act(shard, err);
}

int muster_shard_discard(struct muster_shard *shard, struct muster_error *err)
{
    if (shard_check_ready(shard, err))
        return -1;
    memset(shard->has_gradient, 0, (size_t)shard->layout.param_count);
    shard_core_discard(&shard->core);
    return shard_act(shard, err);
}
