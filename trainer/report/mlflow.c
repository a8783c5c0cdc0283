/* mlflow.c - see report_internal.h. */
#include "trainer/report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

/* Writes a text in YAML's single quotes; line breaks become blanks, as YAML would fold them. */
static void put_quoted(struct buffer *out, const char *text)
{
    buffer_text(out, "'");
    for (; text && *text; text++)
        buffer_printf(out, *text == '\'' ? "''" : "%c", (unsigned char)*text < ' ' ? ' ' : *text);
    buffer_text(out, "'");
}

static void put_pair(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, "%s: ", name);
    put_quoted(out, text);
    buffer_text(out, "\n");
}

/* Writes "file:///runs/mlruns/1/ID/artifacts"; characters that a URI must escape become %XX. */
static void put_uri(struct buffer *out, const char *name, const char *store, const char *rest)
{
    buffer_printf(out, "%s: 'file://", name);
    for (const char *at = store; *at; at++) {
        const bool plain = strchr("/-_.~", *at) || (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z') ||
                           (*at >= 'a' && *at <= 'z');
        buffer_printf(out, plain ? "%c" : "%%%02X", (unsigned char)*at);
    }
    buffer_printf(out, "/%s'\n", rest);
}

int mlflow_experiment_text(const char *id, const char *name, const char *store, int64_t now_ms,
                           struct buffer *out)
{
    put_uri(out, "artifact_location", store, id);
    buffer_printf(out, "creation_time: %lld\n", (long long)now_ms);
    put_pair(out, "experiment_id", id);
    buffer_printf(out, "last_update_time: %lld\nlifecycle_stage: active\n", (long long)now_ms);
    put_pair(out, "name", name);
    return out->failed ? -1 : 0;
}

int mlflow_run_text(const struct mlflow_run *run, struct buffer *out)
{
    scope_free char *artifacts = mem_printf("%s/%s/artifacts", run->experiment, run->id);
    if (!artifacts)
        return -1;
    put_uri(out, "artifact_uri", run->store, artifacts);
    if (run->end_ms)
        buffer_printf(out, "end_time: %lld\n", (long long)run->end_ms);
    else
        buffer_text(out, "end_time: null\n");
    buffer_text(out, "entry_point_name: ''\n");
    put_pair(out, "experiment_id", run->experiment);
    buffer_text(out, "lifecycle_stage: active\n");
    put_pair(out, "run_id", run->id);
    put_pair(out, "run_name", run->name);
    buffer_printf(out,
                  "source_name: muster-train\nsource_type: 4\nsource_version: ''\nstart_time: %lld\nstatus: "
                  "%d\ntags: []\n",
                  (long long)run->start_ms, (int)run->status);
    put_pair(out, "user_id", run->user);
    return out->failed ? -1 : 0;
}

/* Writes a number as Python writes a float. */
static void put_float(struct buffer *out, double value)
{
    if (isfinite(value))
        buffer_printf(out, "%.17g", value);
    else
        buffer_text(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

int mlflow_add(const struct entry *entry, int64_t wall_ns, struct buffer *out)
{
    const char *prefix = entry_kind_prefix(entry->kind);
    for (int i = 0; *prefix && i < entry->count; i++) {
        const struct entry_value *v = &entry->values[i];
        if (v->type != ENTRY_NUMBER && v->type != ENTRY_INTEGER && v->type != ENTRY_FLAG)
            continue;
        buffer_printf(out, "%s%s%c%lld ", prefix, v->name, '\0', (long long)(wall_ns / NS_PER_MS));
        put_float(out, v->type == ENTRY_NUMBER    ? v->number
                       : v->type == ENTRY_INTEGER ? (double)v->integer
                                                  : (double)v->flag);
        buffer_printf(out, " %lld\n%c", (long long)entry->step, '\0');
    }
    return out->failed ? -1 : 0;
}

size_t mlflow_cut(const char *text, size_t length, int64_t step)
{
    size_t kept = 0;
    while (kept < length) {
        const char *end = memchr(text + kept, '\n', length - kept);
        if (!end)
            break; /* an incomplete line */
        const char *last = end;
        while (last > text + kept && last[-1] != ' ')
            last--;
        if (strtoll(last, NULL, 10) > step)
            break;
        kept = (size_t)(end - text) + 1;
    }
    return kept;
}

char *mlflow_read_value(const char *text, const char *name)
{
    const size_t size = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, size) != 0 || line[size] != ':')
            continue;
        const char *value = line + size + 1 + strspn(line + size + 1, " ");
        size_t length = strcspn(value, "\n");
        const char quote = *value;
        if (length >= 2 && (quote == '\'' || quote == '"') && value[length - 1] == quote)
            value++, length -= 2;
        char *out = mem_strndup(value, length), *to = out;
        for (const char *from = out; from && *from; from++, to++) {
            *to = *from;
            if (quote == '\'' && *from == '\'' && from[1] == '\'')
                from++;
        }
        if (out)
            *to = '\0';
        return out;
    }
    return NULL;
}
