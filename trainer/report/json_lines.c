/* json_lines.c - see json_lines.h. */
#include "trainer/report/json_lines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/clock.h"

/* The shortest of 9 or 17 digits that gives the same number back. */
static void put_number(struct buffer *out, double value)
{
    char text[40];
    if (!isfinite(value)) {
        buffer_text(out, "null");
        return;
    }
    (void)snprintf(text, sizeof text, "%.9g", value); /* fits, as does the other */
    if (strtod(text, NULL) != value)
        (void)snprintf(text, sizeof text, "%.17g", value);
    buffer_text(out, text);
}

static void put_integers(struct buffer *out, const int64_t *values, int64_t count)
{
    buffer_text(out, "[");
    for (int64_t i = 0; i < count; i++)
        buffer_printf(out, i ? ", %lld" : "%lld", (long long)values[i]);
    buffer_text(out, "]");
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
    case ENTRY_INTEGERS:
        put_integers(out, value->integers.values, value->integers.count);
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
