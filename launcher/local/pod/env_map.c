/* env_map.c - see env_map.h. */
#include "launcher/local/pod/env_map.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

/* The slot of a name, or the empty one where it would stand. NULL in an empty map. */
static uint32_t *slot_of(const struct env_map *map, const char *name, size_t length)
{
    if (!map->slot_count)
        return NULL;
    for (size_t at = (size_t)text_hash(TEXT_HASH_START, name, length);; at++) {
        uint32_t *slot = &map->slots[at & (map->slot_count - 1)];
        const char *other = *slot ? map->entries[*slot - 1].name : NULL;
        if (!other || (!strncmp(other, name, length) && !other[length]))
            return slot;
    }
}

static struct env_entry *find(const struct env_map *map, const char *name, size_t length)
{
    const uint32_t *slot = slot_of(map, name, length);
    return slot && *slot ? &map->entries[*slot - 1] : NULL;
}

/* Room for one more entry, and at most half of the slots taken. */
static int grow(struct env_map *map)
{
    if (2 * (map->count + 1) <= map->slot_count)
        return 0;
    size_t more = map->slot_count ? 2 * map->slot_count : 64;
    struct env_entry *longer = mem_realloc(map->entries, more / 2, sizeof *longer);
    if (!longer)
        return -1;
    map->entries = longer;
    uint32_t *slots = mem_calloc(more, sizeof *slots);
    if (!slots)
        return -1;
    mem_free(map->slots);
    map->slots = slots;
    map->slot_count = more;
    for (size_t i = 0; i < map->count; i++)
        *slot_of(map, map->entries[i].name, strlen(map->entries[i].name)) = (uint32_t)i + 1;
    return 0;
}

/* Owns value from now on if it returns 0. */
static int env_map_append(struct env_map *map, const char *name, char *value)
{
    if (grow(map) < 0)
        return -1;
    char *copy = mem_strdup(name);
    if (!copy)
        return -1;
    *slot_of(map, name, strlen(name)) = (uint32_t)map->count + 1;
    map->entries[map->count++] = (struct env_entry){copy, value};
    return 0;
}

int env_map_set(struct env_map *map, const char *name, const char *value, struct muster_error *err)
{
    struct env_entry *old = find(map, name, strlen(name));
    size_t bytes = strlen(name) + strlen(value) + 2;
    if (bytes > ENV_TEXT_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%.100s is longer than the %d bytes allowed for a variable",
                         name, ENV_TEXT_LIMIT);
    size_t before = old ? strlen(name) + strlen(old->value) + 2 : 0;
    if (map->bytes - before + bytes > ENV_TOTAL_LIMIT || (!old && map->count == ENV_ENTRIES_LIMIT))
        return error_set(err, MUSTER_E_LIMIT,
                         "%.100s is above the limit of %d variables and %d bytes for one container", name,
                         ENV_ENTRIES_LIMIT, ENV_TOTAL_LIMIT);
    char *copy = mem_strdup(value);
    if (!copy || (!old && env_map_append(map, name, copy) < 0)) {
        mem_free(copy);
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    }
    if (old) {
        mem_free(old->value);
        old->value = copy;
    }
    map->bytes += bytes - before;
    return 0;
}

int env_map_list(const struct env_map *map, struct text_list *out)
{
    for (size_t i = 0; i < map->count; i++)
        if (text_list_take(out, mem_printf("%s=%s", map->entries[i].name, map->entries[i].value)) < 0)
            return -1;
    return 0;
}

void env_map_free(struct env_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->count; i++) {
        mem_free(map->entries[i].name);
        mem_free(map->entries[i].value);
    }
    mem_free(map->entries);
    mem_free(map->slots);
    *map = (struct env_map){0};
}

int env_expand(const char *text, const struct env_map *map, struct buffer *out)
{
    while (*text) {
        const char *dollar = strchr(text, '$'), *end;
        size_t plain = dollar ? (size_t)(dollar - text) : strlen(text);
        buffer_append(out, text, plain);
        text += plain;
        if (!dollar)
            break;
        if (text[1] == '(' && (end = strchr(text, ')'))) {
            const struct env_entry *entry = find(map, text + 2, (size_t)(end - text - 2));
            if (entry)
                buffer_text(out, entry->value);
            else
                buffer_append(out, text, (size_t)(end + 1 - text));
            text = end + 1;
        } else { /* "$$" is one dollar; before any other character a dollar is literal */
            buffer_text(out, "$");
            text += text[1] == '$' ? 2 : 1;
        }
    }
    return out->failed ? -1 : 0;
}

/* --- facts --- */

bool facts_add(struct facts *facts, const char *name, char *value)
{
    if (!value || facts->count == FACTS_LIMIT) {
        mem_free(value);
        return false;
    }
    facts->list[facts->count++] = (struct fact){name, value};
    return true;
}

bool facts_add_number(struct facts *facts, const char *name, int64_t value)
{
    return facts_add(facts, name, mem_printf("%lld", (long long)value));
}

const char *facts_find(const struct facts *facts, const char *name)
{
    for (int i = facts->count - 1; i >= 0; i--)
        if (!strcmp(facts->list[i].name, name))
            return facts->list[i].value;
    return NULL;
}

void facts_free(struct facts *facts)
{
    for (int i = 0; i < facts->count; i++)
        mem_free(facts->list[i].value);
    facts->count = 0;
}
