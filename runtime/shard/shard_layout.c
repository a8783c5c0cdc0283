/* shard_layout.c - see shard_layout.h. */
#include "runtime/shard/shard_layout.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

/* ---- registration ---- */

static void *grow_list(void *list, int count, int *room, size_t size)
{
    if (count < *room)
        return list;
    int more = *room ? 2 * *room : 16;
    void *grown = mem_realloc(list, (size_t)more, size);
    if (grown)
        *room = more;
    return grown;
}

int shard_layout_group(struct shard_layout *layout, const char *name, bool frozen, struct muster_error *err)
{
    if (layout->group_count == SHARD_GROUPS_MAX)
        return error_set(err, MUSTER_E_LIMIT, "group %s is one more than %d groups", name, SHARD_GROUPS_MAX);
    struct shard_group *list =
        grow_list(layout->groups, layout->group_count, &layout->group_room, sizeof *layout->groups);
    char *copy = mem_strdup(name);
    if (list)
        layout->groups = list;
    if (!list || !copy) {
        mem_free(copy);
        return error_set(err, MUSTER_E_NOMEM, "no memory for group %s", name);
    }
    layout->groups[layout->group_count] =
        (struct shard_group){.name = copy, .frozen = frozen, .first_param = layout->param_count};
    return layout->group_count++;
}

int shard_layout_parameter(struct shard_layout *layout, const char *name, int64_t elements,
                           int parameter_class, struct muster_error *err)
{
    if (!layout->group_count)
        return error_set(err, MUSTER_E_STATE, "parameter %s comes before the first group", name);
    if (elements < 1 || elements > SHARD_ELEMENTS_MAX)
        return error_set(err, MUSTER_E_INVALID, "parameter %s has %lld elements, but must have 1 to %lld",
                         name, (long long)elements, (long long)SHARD_ELEMENTS_MAX);
    if (layout->param_count == SHARD_PARAMS_MAX)
        return error_set(err, MUSTER_E_LIMIT, "parameter %s is one more than %d parameters", name,
                         SHARD_PARAMS_MAX);
    struct shard_param *list =
        grow_list(layout->params, layout->param_count, &layout->param_room, sizeof *layout->params);
    char *copy = mem_strdup(name);
    if (list)
        layout->params = list;
    if (!list || !copy) {
        mem_free(copy);
        return error_set(err, MUSTER_E_NOMEM, "no memory for parameter %s", name);
    }
    layout->params[layout->param_count] = (struct shard_param){.name = copy,
                                                               .group = layout->group_count - 1,
                                                               .parameter_class = parameter_class,
                                                               .elements = elements};
    layout->groups[layout->group_count - 1].param_count++;
    return layout->param_count++;
}

void shard_layout_free(struct shard_layout *layout)
{
    for (int i = 0; i < layout->group_count; i++)
        mem_free(layout->groups[i].name);
    for (int i = 0; i < layout->param_count; i++)
        mem_free(layout->params[i].name);
    mem_free(layout->groups);
    mem_free(layout->params);
    mem_free(layout->classes);
    *layout = (struct shard_layout){0};
}

/* ---- placing ---- */

static int64_t round_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Where a parameter and a rank's part of its group overlap; *begin and *end in the group, equal if nowhere.
 */
static void overlap(const struct shard_group *group, const struct shard_param *param, int rank,
                    int64_t *begin, int64_t *end)
{
    int64_t from = rank * group->part, to = from + group->part, last = param->offset + param->elements;
    *begin = param->offset > from ? param->offset : from;
    *end = last < to ? last : to;
    if (*end < *begin)
        *end = *begin;
}

void shard_layout_piece(const struct shard_layout *layout, const struct shard_param *param, int rank,
                        int64_t *first, int64_t *count)
{
    int64_t begin, end;
    overlap(&layout->groups[param->group], param, rank, &begin, &end);
    *count = end - begin;
    *first = *count ? begin - param->offset : 0;
}

static void cut(const struct shard_layout *layout, const struct shard_group *group, struct shard_param *param)
{
    int64_t begin, end;
    overlap(group, param, layout->rank, &begin, &end);
    shard_layout_piece(layout, param, layout->rank, &param->first, &param->part);
    param->part_offset = param->part ? begin - layout->rank * group->part : 0;
}

static void place_group(struct shard_layout *layout, struct shard_group *group)
{
    struct shard_param *params = layout->params + group->first_param;
    int64_t at = 0;
    for (int i = 0; i < group->param_count; i++) {
        params[i].offset = at;
        at = round_up(at + params[i].elements, SHARD_ALIGN_ELEMENTS);
    }
    group->part = round_up((at + layout->size - 1) / layout->size, SHARD_ALIGN_ELEMENTS);
    group->elements = group->part * layout->size;
    for (int i = 0; i < group->param_count; i++)
        cut(layout, group, &params[i]);
    group->part_offset = layout->part_elements;
    group->state_offset = layout->state_elements;
    layout->part_elements += group->part;
    layout->state_elements += group->frozen ? 0 : group->part;
}

static int64_t slot_bytes(const struct shard_group *group, int element_bytes)
{
    return round_up(group->elements * element_bytes, SHARD_PAGE_BYTES);
}

/* Groups of more than half a slot's size share it; from the largest on. */
static int classify(struct shard_layout *layout)
{
    layout->classes = mem_calloc((size_t)layout->group_count, sizeof *layout->classes);
    if (!layout->classes)
        return -1;
    for (int i = 0; i < layout->group_count; i++)
        layout->groups[i].slot_class = -1;
    for (int left = layout->group_count; left > 0;) {
        struct shard_class *slot = &layout->classes[layout->class_count];
        for (int i = 0; i < layout->group_count; i++) {
            int64_t bytes = slot_bytes(&layout->groups[i], layout->element_bytes);
            if (layout->groups[i].slot_class < 0 && bytes > slot->bytes)
                slot->bytes = bytes;
        }
        for (int i = 0; i < layout->group_count; i++) {
            struct shard_group *group = &layout->groups[i];
            if (group->slot_class >= 0 || 2 * slot_bytes(group, layout->element_bytes) <= slot->bytes)
                continue;
            int64_t gradients = slot_bytes(group, layout->gradient_bytes);
            slot->gradient_bytes = gradients > slot->gradient_bytes ? gradients : slot->gradient_bytes;
            group->slot_class = layout->class_count;
            slot->groups++;
            slot->trainable += !group->frozen;
            left--;
        }
        layout->class_count++;
    }
    return 0;
}

int shard_layout_finish(struct shard_layout *layout, struct muster_error *err)
{
    if (!layout->group_count)
        return error_set(err, MUSTER_E_INVALID, "no groups are registered: there is nothing to shard");
    for (int i = 0; i < layout->group_count; i++) {
        if (!layout->groups[i].param_count)
            return error_set(err, MUSTER_E_INVALID, "group %s has no parameters", layout->groups[i].name);
        place_group(layout, &layout->groups[i]);
    }
    return classify(layout) ? error_set(err, MUSTER_E_NOMEM, "no memory for %d groups", layout->group_count)
                            : 0;
}

uint64_t shard_layout_hash(const struct shard_layout *layout, int group)
{
    const struct shard_group *g = &layout->groups[group];
    uint64_t hash = text_hash(TEXT_HASH_START, g->name, strlen(g->name) + 1);
    int64_t numbers[] = {g->frozen, g->param_count, layout->element_bytes, layout->gradient_bytes};
    hash = text_hash(hash, numbers, sizeof numbers);
    for (int i = 0; i < g->param_count; i++) {
        const struct shard_param *p = &layout->params[g->first_param + i];
        int64_t of_param[] = {p->elements, p->parameter_class};
        hash = text_hash(hash, p->name, strlen(p->name) + 1);
        hash = text_hash(hash, of_param, sizeof of_param);
    }
    return hash;
}
