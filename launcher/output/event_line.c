/* event_line.c - see event_line.h. */
#include "launcher/output/event_line.h"

#include <inttypes.h>

#include "proto/base/clock.h"

static const char *const state_names[] = {
#define EVENT_NAME(symbol, name, ...) [symbol] = (name),
    EVENT_STATES(EVENT_NAME)
#undef EVENT_NAME
};

static void put_text(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, ", \"%s\": ", name);
    (void)buffer_json_string(out, text); /* the buffer remembers a failure */
}

static void put_number(struct buffer *out, const char *name, bool known, int64_t value)
{
    if (known)
        buffer_printf(out, ", \"%s\": %" PRId64, name, value);
    else
        buffer_printf(out, ", \"%s\": null", name);
}

/* A list of one, as torchrun has it; an agent's is empty. */
static void put_list(struct buffer *out, const char *name, bool known, int value)
{
    buffer_printf(out, known ? ", \"%s\": [%d]" : ", \"%s\": []", name, value);
}

static void put_inner(const struct event_line *line, struct buffer *out)
{
    scope_buffer inner = {0};
    buffer_printf(&inner, "{\"group_world_size\": %d", line->group_world_size);
    put_text(&inner, "entry_point", line->entry_point);
    put_list(&inner, "local_rank", line->of_worker, line->local_rank);
    put_list(&inner, "role_rank", line->of_worker, line->role_rank);
    put_list(&inner, "role_world_size", line->of_worker, line->role_world_size);
    buffer_text(&inner, "}");
    if (inner.failed)
        out->failed = true;
    else
        put_text(out, "metadata", inner.data);
}

int event_line_format(const struct event_line *line, struct buffer *out)
{
    const char *state = state_names[line->state];
    buffer_printf(out,
                  "{\"name\": \"torchelastic.worker.status.%s\", \"source\": \"%s\", \"timestamp\": %" PRId64
                  ", \"metadata\": {\"run_id\": ",
                  state, line->of_worker ? "WORKER" : "AGENT", line->wall_ns / NS_PER_S);
    (void)buffer_json_string(out, line->run_id);
    put_number(out, "global_rank", line->of_worker, line->rank);
    put_number(out, "group_rank", true, line->group_rank);
    buffer_text(out, ", \"worker_id\": ");
    buffer_printf(out, line->of_worker ? "\"%d\"" : "null", line->pid);
    put_text(out, "role", line->role);
    put_text(out, "hostname", line->host);
    put_text(out, "state", state);
    put_number(out, "total_run_time", true, line->run_ns / NS_PER_S);
    put_text(out, "rdzv_backend", line->backend);
    put_text(out, "raw_error", line->error);
    put_number(out, "agent_restarts", true, line->restarts);
    put_number(out, "duration_ms", true, line->duration_ns / NS_PER_MS);
    put_number(out, "exit_code", line->ended, line->exit_code);
    put_number(out, "worker_pid", line->of_worker, line->pid);
    put_inner(line, out);
    return buffer_text(out, "}}\n");
}
