/* lora.c - see lora.h: the settings of adapters, and which modules they are for. */
#include "runtime/model/lora.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

int lora_check(const struct lora *lora, struct muster_error *err)
{
    if (lora->rank < 1 || lora->rank > LORA_RANK_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "lora: rank is %d, but must be 1 to %d", lora->rank,
                         LORA_RANK_LIMIT);
    if (!(lora->alpha > 0))
        return error_set(err, MUSTER_E_INVALID, "lora: alpha is %g, but must be above 0", lora->alpha);
    if (!(lora->dropout >= 0 && lora->dropout < 1))
        return error_set(err, MUSTER_E_INVALID, "lora: dropout is %g, but must be from 0 to below 1",
                         lora->dropout);
    if (lora->target_count < 1)
        return error_set(err, MUSTER_E_INVALID,
                         "lora: no target is named: name modules, like q_proj, or " LORA_ALL);
    return 0;
}

int lora_add_target(struct lora *lora, const char *name, struct muster_error *err)
{
    if (!*name || strlen(name) >= MODEL_NAME_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "lora: target '%.100s' must have 1 to %d characters", name,
                         MODEL_NAME_LIMIT - 1);
    for (int i = 0; i < lora->target_count; i++)
        if (!strcmp(lora->target[i], name))
            return 0;
    if (lora->target_count == LORA_TARGETS)
        return error_set(err, MUSTER_E_LIMIT,
                         "lora: more than %d targets; " LORA_ALL " stands for all products", LORA_TARGETS);
    (void)snprintf(lora->target[lora->target_count++], MODEL_NAME_LIMIT, "%s", name); /* fits */
    return 0;
}

uint32_t lora_targets_of(const struct lora *lora, const char *module)
{
    const size_t length = strlen(module);
    uint32_t targets = 0;
    for (int i = 0; i < lora->target_count; i++) {
        const char *target = lora->target[i];
        const size_t part = strlen(target);
        if (!strcmp(target, LORA_ALL) || !strcmp(target, module) ||
            (part < length && module[length - part - 1] == '.' && !strcmp(module + length - part, target)))
            targets |= 1u << i;
    }
    return targets;
}

double lora_scale(const struct lora *lora)
{
    return lora->alpha / lora->rank;
}
