/* patch.c - see building.h. */
#include "launcher/local/manifest/building.h"

#include <string.h>

#include "proto/base/mem.h"

static void *take_block(struct patch_memory *memory, size_t count, size_t size)
{
    void **longer = mem_realloc(memory->blocks, memory->count + 1, sizeof *longer);
    if (!longer)
        return NULL;
    memory->blocks = longer;
    void *block = mem_calloc(count + 1, size);
    if (block)
        memory->blocks[memory->count++] = block;
    return block;
}

/* The field by which items of a list are the same; NULL: the list is replaced as a whole. */
static const char *merge_key(const char *list)
{
    static const char *const named[] = {
        "replicatedJobs",   "containers",     "initContainers", "volumes", "env",
        "imagePullSecrets", "resourceClaims", "schedulingGates"};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (!strcmp(list, named[i]))
            return "name";
    if (!strcmp(list, "volumeMounts"))
        return "mountPath";
    if (!strcmp(list, "ports"))
        return "containerPort";
    return !strcmp(list, "hostAliases") ? "ip" : NULL;
}

static bool is_deleted(const struct tree_node *item)
{
    const char *directive = tree_text(tree_get(item, "$patch"));
    return directive && !strcmp(directive, "delete");
}

static const struct tree_node *merge(struct patch_memory *memory, const struct tree_node *base,
                                     const struct tree_node *patch, const char *field);

static const struct tree_node *merge_maps(struct patch_memory *memory, const struct tree_node *base,
                                          const struct tree_node *patch)
{
    struct tree_node *node = take_block(memory, 1, sizeof *node);
    struct tree_entry *entries = take_block(memory, base->count + patch->count, sizeof *entries);
    if (!node || !entries)
        return NULL;
    *node = *base;
    node->entries = entries;
    node->count = 0;
    for (size_t i = 0; i < base->count; i++) {
        const struct tree_entry *over = tree_entry(patch, base->entries[i].key);
        struct tree_entry entry = base->entries[i];
        if (over && over->value->kind == TREE_NULL)
            continue; /* a null deletes */
        if (over && !(entry.value = merge(memory, entry.value, over->value, entry.key)))
            return NULL;
        entries[node->count++] = entry;
    }
    for (size_t i = 0; i < patch->count; i++)
        if (!tree_entry(base, patch->entries[i].key) && patch->entries[i].key[0] != '$')
            entries[node->count++] = patch->entries[i];
    return node;
}

/* Known items stay where they are, new ones follow. A volume is one thing: another source replaces it. */
static const struct tree_node *merge_lists(struct patch_memory *memory, const struct tree_node *base,
                                           const struct tree_node *patch, const char *field)
{
    const char *key = merge_key(field);
    if (!key)
        return patch;
    struct tree_node *node = take_block(memory, 1, sizeof *node);
    const struct tree_node **items = take_block(memory, base->count + patch->count, sizeof(void *));
    bool *used = take_block(memory, patch->count, sizeof *used);
    if (!node || !items || !used)
        return NULL;
    *node = *base;
    node->items = items;
    node->count = 0;
    for (size_t i = 0; i < base->count; i++) {
        const struct tree_node *item = base->items[i];
        for (size_t k = 0; item && k < patch->count; k++) {
            const struct tree_node *one = tree_get(item, key), *two = tree_get(patch->items[k], key);
            if (!(one && two && one->text && two->text && !strcmp(one->text, two->text)))
                continue;
            used[k] = true;
            item = is_deleted(patch->items[k]) ? NULL
                   : !strcmp(field, "volumes") ? patch->items[k]
                                               : merge(memory, item, patch->items[k], field);
            if (!item && !is_deleted(patch->items[k]))
                return NULL;
        }
        if (item)
            items[node->count++] = item;
    }
    for (size_t k = 0; k < patch->count; k++)
        if (!used[k] && !is_deleted(patch->items[k]))
            items[node->count++] = patch->items[k];
    return node;
}

/* A variable is one thing: a value replaces a valueFrom. */
static const struct tree_node *merge(struct patch_memory *memory, const struct tree_node *base,
                                     const struct tree_node *patch, const char *field)
{
    if (base->kind != patch->kind || !strcmp(field, "env"))
        return base->kind == TREE_LIST && patch->kind == TREE_LIST ? merge_lists(memory, base, patch, field)
                                                                   : patch;
    if (base->kind == TREE_MAP)
        return merge_maps(memory, base, patch);
    return base->kind == TREE_LIST ? merge_lists(memory, base, patch, field) : patch;
}

const struct tree_node *patch_merge(struct patch_memory *memory, const struct tree_node *base,
                                    const struct tree_node *patch)
{
    return base ? merge(memory, base, patch, "") : patch;
}

const struct tree_node *patch_map(struct patch_memory *memory, const char *key, const struct tree_node *value)
{
    struct tree_node *node = value ? take_block(memory, 1, sizeof *node) : NULL;
    struct tree_entry *entry = node ? take_block(memory, 1, sizeof *entry) : NULL;
    if (!entry)
        return NULL;
    *entry = (struct tree_entry){key, value->line, value->column, value};
    *node = (struct tree_node){
        .kind = TREE_MAP, .line = value->line, .column = value->column, .count = 1, .entries = entry};
    return node;
}

const struct tree_node *patch_list(struct patch_memory *memory, const struct tree_node *item)
{
    struct tree_node *node = item ? take_block(memory, 1, sizeof *node) : NULL;
    const struct tree_node **items = node ? take_block(memory, 1, sizeof(void *)) : NULL;
    if (!items)
        return NULL;
    items[0] = item;
    *node = (struct tree_node){
        .kind = TREE_LIST, .line = item->line, .column = item->column, .count = 1, .items = items};
    return node;
}

void patch_free(struct patch_memory *memory)
{
    for (size_t i = 0; i < memory->count; i++)
        mem_free(memory->blocks[i]);
    mem_free(memory->blocks);
    *memory = (struct patch_memory){0};
}
