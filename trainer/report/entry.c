/* entry.c - see entry.h. */
#include "trainer/report/entry.h"

#include <stddef.h>

const char *entry_kind_name(enum entry_kind kind)
{
    static const char *const names[] = {
#define ENTRY_KIND_NAME(symbol, name, prefix) [symbol] = name,
        ENTRY_KINDS(ENTRY_KIND_NAME)
#undef ENTRY_KIND_NAME
    };
    return names[kind];
}

const char *entry_kind_prefix(enum entry_kind kind)
{
    static const char *const prefixes[] = {
#define ENTRY_KIND_PREFIX(symbol, name, prefix) [symbol] = prefix,
        ENTRY_KINDS(ENTRY_KIND_PREFIX)
#undef ENTRY_KIND_PREFIX
    };
    return prefixes[kind];
}

static struct entry_value *append(struct entry *entry, const char *name, enum entry_type type)
{
    static struct entry_value unused; /* written and never read */
    if (entry->count == ENTRY_VALUES)
        return &unused;
    struct entry_value *value = &entry->values[entry->count++];
    *value = (struct entry_value){.name = name, .type = type};
    return value;
}

void entry_number(struct entry *entry, const char *name, double value)
{
    append(entry, name, ENTRY_NUMBER)->number = value;
}

void entry_integer(struct entry *entry, const char *name, int64_t value)
{
    append(entry, name, ENTRY_INTEGER)->integer = value;
}

void entry_flag(struct entry *entry, const char *name, bool value)
{
    append(entry, name, ENTRY_FLAG)->flag = value;
}

void entry_text(struct entry *entry, const char *name, const char *value)
{
    append(entry, name, ENTRY_TEXT)->text = value;
}

void entry_integers(struct entry *entry, const char *name, const int64_t *values, int64_t count)
{
    struct entry_value *value = append(entry, name, ENTRY_INTEGERS);
    value->integers.values = values;
    value->integers.count = count;
}
