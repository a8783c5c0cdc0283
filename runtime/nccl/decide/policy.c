/* policy.c - see policy.h. */
#include "runtime/nccl/decide/policy.h"

#include <fnmatch.h>
#include <string.h>

bool policy_applies(const struct policy_entry *entry, const struct description *description)
{
    int version = description_version(description->nccl);
    if ((entry->nccl_least || entry->nccl_below) && version == 0)
        return false;
    if ((entry->nccl_least && version < entry->nccl_least) ||
        (entry->nccl_below && version >= entry->nccl_below))
        return false;
    if (entry->nodes_least && description->nnodes < entry->nodes_least)
        return false;
    if (entry->pool && fnmatch(entry->pool, description->node_pool, 0) != 0)
        return false;
    return !entry->gpu ||
           (description->gpu_count > 0 && fnmatch(entry->gpu, description->gpus[0].name, 0) == 0);
}

const struct policy_entry *policy_find(const struct policy *policy, const char *name, enum policy_kind kind,
                                       const struct description *description)
{
    for (int i = 0; i < policy->count; i++) {
        const struct policy_entry *entry = &policy->entries[i];
        if (entry->kind == kind && !strcmp(entry->name, name) && policy_applies(entry, description))
            return entry;
    }
    return NULL;
}
