/* entry.c - see report.h: entries, and their lines of JSON. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/clock.h"
#include "trainer/report/report.h"
#include "trainer/report/report_internal.h"

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

/* ---- a line of JSON ---- */

/* Writes 9 digits, or 17 if 9 do not give the same number back. */
static void put_number(struct buffer *out, double value)
{
    char text[40];
    if (!isfinite(value)) {
        buffer_text(out, "null");
        return;
    }
    (void)snprintf(text, sizeof text, "%.9g", value); /* fits, as do 17 digits */
    if (strtod(text, NULL) != value)
        (void)snprintf(text, sizeof text, "%.17g", value);
    buffer_text(out, text);
}

static void put_value(struct buffer *out, const struct entry_value *value)
{
    buffer_text(out, ", ");
    buffer_json_string(out, value->name);
    buffer_text(out, ": ");
    switch (value->type) {
    case ENTRY_NUMBER:
        put_number(out, value->number);
        break;
    case ENTRY_INTEGER:
        buffer_printf(out, "%lld", (long long)value->integer);
        break;
    case ENTRY_FLAG:
        buffer_text(out, value->flag ? "true" : "false");
        break;
    case ENTRY_TEXT:
        buffer_json_string(out, value->text);
        break;
    }
}

int json_lines_add(const struct entry *entry, int64_t wall_ns, struct buffer *out)
{
    buffer_printf(out, JSON_LINES_BEGIN "%d, \"kind\": \"%s\", \"time\": %lld.%03lld, \"step\": %lld",
                  JSON_LINES_SCHEMA, entry_kind_name(entry->kind), (long long)(wall_ns / NS_PER_S),
                  (long long)(wall_ns % NS_PER_S / NS_PER_MS), (long long)entry->step);
    for (int i = 0; i < entry->count; i++)
        put_value(out, &entry->values[i]);
    buffer_text(out, "}\n");
    return out->failed ? -1 : 0;
}
