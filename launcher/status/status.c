/* status.c - the struct, JSON and the table; see status.h. Metrics are in status_metrics.c. */
#include "launcher/status/status.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"

struct agent_status *status_create(int worker_count)
{
    size_t size = sizeof(struct agent_status) + (size_t)worker_count * sizeof(struct status_worker);
    struct agent_status *status = mem_calloc(1, size);
    if (status)
        status->worker_count = worker_count;
    return status;
}

const char *status_worker_state_name(enum status_worker_state state)
{
    static const char *const names[] = {
#define STATUS_NAME(symbol, name) name,
        STATUS_WORKER_STATES(STATUS_NAME)
#undef STATUS_NAME
    };
    return (unsigned)state < STATUS_WORKER_STATE_COUNT ? names[state] : "?";
}

static double seconds(int64_t ns)
{
    return (double)ns / (double)NS_PER_S;
}

/* --- JSON --- */

static void json_text(struct buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "\"%s\": ", name);
    buffer_json_string(out, value);
    buffer_text(out, ", ");
}

static void json_figures(const struct worker_figures *figures, struct buffer *out)
{
    const char *before = "";
    if (!figures->there)
        return;
    buffer_text(out, ", \"figures\": {");
    for (int i = 0; i < FIGURE_COUNT; i++)
        if (figures->has[i]) {
            buffer_printf(out, "%s\"%s\": %.9g", before, figure_row((enum figure)i)->name, figures->value[i]);
            before = ", ";
        }
    buffer_text(out, "}");
}

static void json_worker(const struct status_worker *worker, struct buffer *out)
{
    buffer_printf(out, "{\"rank\": %d, \"local_rank\": %d, \"pid\": %d, \"state\": \"%s\"", worker->rank,
                  worker->local_rank, worker->pid, status_worker_state_name(worker->state));
    if (worker->state == STATUS_WORKER_EXITED || worker->state == STATUS_WORKER_FAILED)
        buffer_printf(out, ", \"exit_code\": %d, \"signal\": %d", worker->exit_code, worker->signal);
    if (worker->step >= 0)
        buffer_printf(out, ", \"step\": %lld", (long long)worker->step);
    if (worker->beat_age_ns >= 0)
        buffer_printf(out, ", \"beat_age_s\": %.3f", seconds(worker->beat_age_ns));
    json_figures(&worker->figures, out);
    buffer_text(out, "}");
}

static void json_world(const struct agent_status *status, struct buffer *out)
{
    const struct membership_world *world = &status->world;
    if (!status->formed) {
        buffer_text(out, "\"world\": null, ");
        return;
    }
    buffer_printf(out, "\"world\": {\"round\": %u, \"group_rank\": %d, \"group_world_size\": %d, ",
                  (unsigned)world->id.round, world->group_rank, world->group_world_size);
    buffer_printf(out, "\"rank_base\": %d, \"world_size\": %d, ", world->rank_base, world->world_size);
    json_text(out, "master_addr", world->master_addr);
    buffer_printf(out, "\"master_port\": %u}, ", (unsigned)world->master_port);
}

static void json_store(const struct status_store *store, struct buffer *out)
{
    if (!store->there) {
        buffer_text(out, "\"store\": null, ");
        return;
    }
    buffer_printf(out,
                  "\"store\": {\"bytes\": %llu, \"budget\": %llu, \"keys\": %llu, \"connections\": %llu, ",
                  (unsigned long long)store->bytes, (unsigned long long)store->budget,
                  (unsigned long long)store->keys, (unsigned long long)store->connections);
    buffer_printf(out, "\"requests\": %llu, \"closed\": %llu, \"crowded_out\": %llu}, ",
                  (unsigned long long)store->requests, (unsigned long long)store->closed,
                  (unsigned long long)store->crowded_out);
}

static void json_serving(const struct membership_serving *serving, struct buffer *out)
{
    if (serving->server[0]) {
        buffer_text(out, "\"server\": {");
        json_text(out, "name", serving->server);
        json_text(out, "address", serving->address);
        json_text(out, "reason", serving->reason);
        buffer_printf(out, "\"port\": %u}, ", (unsigned)serving->port);
    } else {
        buffer_text(out, "\"server\": null, ");
    }
    buffer_text(out, "\"voters\": [");
    for (int i = 0; i < serving->voter_count; i++) {
        buffer_text(out, i ? ", " : "");
        buffer_json_string(out, serving->voters[i]);
    }
    buffer_text(out, "], ");
}

void status_json(const struct agent_status *status, struct buffer *out)
{
    buffer_text(out, "{");
    json_text(out, "version", status->version);
    json_text(out, "host", status->host);
    buffer_printf(out, "\"pid\": %d, \"uptime_s\": %.3f, ", status->pid, seconds(status->uptime_ns));
    json_text(out, "job_id", status->job_id);
    json_text(out, "program", status->program);
    json_text(out, "role", status->role);
    json_text(out, "state", worker_group_state_name(status->state));
    if (status->leaving)
        buffer_printf(out, "\"exit_code\": %d, ", status->exit_code);
    else
        buffer_text(out, "\"exit_code\": null, ");
    buffer_printf(out, "\"node_rank\": %d, \"min_nodes\": %d, \"max_nodes\": %d, ", status->node_rank,
                  status->min_nodes, status->max_nodes);
    json_text(out, "waiting", status->waiting);
    json_serving(&status->serving, out);
    if (status->notice.coming)
        buffer_printf(out, "\"notice\": {\"coming\": \"%s\", \"listeners\": %d, \"left_s\": %.3f}, ",
                      status->notice.coming, status->notice.listeners, seconds(status->notice.left_ns));
    else
        buffer_text(out, "\"notice\": null, ");
    json_world(status, out);
    buffer_printf(out, "\"restarts\": %lld, \"max_restarts\": %lld, \"failures\": %lld, ",
                  (long long)status->world.restart_count, (long long)status->max_restarts,
                  (long long)status->failures);
    buffer_printf(out, "\"file_bytes_lost\": %llu, \"console_bytes_lost\": %llu, ",
                  (unsigned long long)status->file_bytes_lost,
                  (unsigned long long)status->console_bytes_lost);
    json_store(&status->store, out);
    buffer_text(out, "\"workers\": [");
    for (int i = 0; i < status->worker_count; i++) {
        if (i)
            buffer_text(out, ", ");
        json_worker(&status->workers[i], out);
    }
    buffer_text(out, "]}\n");
}

/* --- for people --- */

/* text with control characters as '?': it goes to a terminal. */
static void shown(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        buffer_append(out, c < 0x20 || c == 0x7f ? "?" : text, 1);
    }
}

static void row(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, "%-10s", name);
    shown(out, text);
    buffer_text(out, "\n");
}

static const char *ending(const struct status_worker *worker, char *text, size_t size)
{
    if (worker->signal)
        (void)snprintf(text, size, "signal %d", worker->signal);
    else if (worker->state == STATUS_WORKER_EXITED || worker->state == STATUS_WORKER_FAILED)
        (void)snprintf(text, size, "exit %d", worker->exit_code);
    else
        (void)snprintf(text, size, "%s", status_worker_state_name(worker->state));
    return text;
}

static void table_worker(const struct status_worker *worker, struct buffer *out)
{
    char pid[16] = "-", step[24] = "-", state[24];
    if (worker->pid)
        (void)snprintf(pid, sizeof pid, "%d", worker->pid);
    if (worker->step >= 0)
        (void)snprintf(step, sizeof step, "%lld", (long long)worker->step);
    buffer_printf(out, "%6d %6d %9s  %-10s %9s", worker->rank, worker->local_rank, pid,
                  ending(worker, state, sizeof state), step);
    if (worker->beat_age_ns >= 0)
        buffer_printf(out, "  %.1f s ago\n", seconds(worker->beat_age_ns));
    else
        buffer_text(out, "  -\n");
}

/* Figures of the first worker that has reported any: most are the same on all ranks. */
static void table_figures(const struct agent_status *status, struct buffer *out)
{
    static const struct {
        enum figure figure;
        const char *format;
    } shown_ones[] = {
        {FIGURE_LOSS, "loss %.4f"},
        {FIGURE_TOKENS_PER_S, "%.0f tokens/s"},
        {FIGURE_STEP_MS, "%.1f ms a step"},
        {FIGURE_EXPOSED_MS, "%.1f ms of it exposed communication"},
        {FIGURE_DATA_WAIT_MS, "%.1f ms for data"},
    };
    int worker = 0;
    while (worker < status->worker_count && !status->workers[worker].figures.there)
        worker++;
    if (worker == status->worker_count)
        return;
    const struct worker_figures *figures = &status->workers[worker].figures;
    const char *before = "";
    buffer_printf(out, "%-10s", "training");
    for (size_t i = 0; i < sizeof shown_ones / sizeof *shown_ones; i++)
        if (figures->has[shown_ones[i].figure]) {
            buffer_text(out, before);
            buffer_printf(out, shown_ones[i].format, figures->value[shown_ones[i].figure]);
            before = ", ";
        }
    buffer_printf(out, " (rank %d)\n", status->workers[worker].rank);
    if (figures->has[FIGURE_SLOW_RANK] && figures->value[FIGURE_SLOW_RANK] >= 0)
        buffer_printf(out, "%-10srank %.0f: the other ranks wait for it %.1f ms a step\n", "slow",
                      figures->value[FIGURE_SLOW_RANK],
                      figures->has[FIGURE_SLOW_MS] ? figures->value[FIGURE_SLOW_MS] : 0);
}

static void table_world(const struct agent_status *status, struct buffer *out)
{
    const struct membership_world *world = &status->world;
    if (!status->formed) {
        buffer_printf(out, "%-10snot formed yet, ", "world");
        if (status->min_nodes == status->max_nodes)
            buffer_printf(out, "%d node%s required\n", status->max_nodes, status->max_nodes == 1 ? "" : "s");
        else
            buffer_printf(out, "%d to %d nodes required\n", status->min_nodes, status->max_nodes);
    } else {
        buffer_printf(out, "%-10sround %u: %d worker%s on %d node%s, this is node %d with rank", "world",
                      (unsigned)world->id.round, world->world_size, world->world_size == 1 ? "" : "s",
                      world->group_world_size, world->group_world_size == 1 ? "" : "s", world->group_rank);
        if (status->worker_count > 1)
            buffer_printf(out, "s %d-%d", world->rank_base, world->rank_base + status->worker_count - 1);
        else
            buffer_printf(out, " %d", world->rank_base);
        buffer_text(out, "; store ");
        shown(out, world->master_addr);
        buffer_printf(out, ":%u\n", (unsigned)world->master_port);
    }
    if (status->waiting[0])
        row(out, "waiting", status->waiting);
    const bool alone = status->serving.voter_count < 2;
    if (alone && (!status->serving.reason[0] || world->group_world_size < 2))
        return; /* the server stays where it is */
    buffer_printf(out, "%-10s", "server");
    shown(out, status->serving.server[0] ? status->serving.server : "none");
    if (alone)
        buffer_text(out, "; no other node can take over");
    for (int i = 0; i < status->serving.voter_count && !alone; i++) {
        buffer_text(out, i ? ", " : "; voters ");
        shown(out, status->serving.voters[i]);
    }
    if (status->serving.reason[0]) {
        buffer_text(out, "; ");
        shown(out, status->serving.reason);
    }
    buffer_text(out, "\n");
}

void status_table(const struct agent_status *status, struct buffer *out)
{
    long long up = status->uptime_ns / NS_PER_S;
    buffer_printf(out, "%-10s%d on ", "agent", status->pid);
    shown(out, status->host);
    buffer_printf(out, ", up %lld:%02lld:%02lld, muster %s\n", up / 3600, up / 60 % 60, up % 60,
                  status->version);
    row(out, "job", status->job_id);
    row(out, "program", status->program);
    buffer_printf(out, "%-10s%s: %s", "state", worker_group_state_name(status->state),
                  worker_group_state_meaning(status->state));
    if (status->leaving)
        buffer_printf(out, "; exits with code %d", status->exit_code);
    buffer_text(out, "\n");
    if (status->notice.coming)
        buffer_printf(out, "%-10s%s; %d worker%s here may save for %.1f s more\n", "notice",
                      status->notice.coming, status->notice.listeners,
                      status->notice.listeners == 1 ? "" : "s", seconds(status->notice.left_ns));
    table_world(status, out);
    buffer_printf(out, "%-10s%lld of %lld used; %lld worker failure%s on this node\n", "restarts",
                  (long long)status->world.restart_count, (long long)status->max_restarts,
                  (long long)status->failures, status->failures == 1 ? "" : "s");
    if (status->file_bytes_lost || status->console_bytes_lost)
        buffer_printf(out, "%-10s%llu bytes lost on the way to files, %llu to the console\n", "logs",
                      (unsigned long long)status->file_bytes_lost,
                      (unsigned long long)status->console_bytes_lost);
    if (status->store.there && status->store.crowded_out)
        buffer_printf(out,
                      "%-10s%llu client%s lost what they held: all hold %llu of at most %llu bytes "
                      "(--store-memory)\n",
                      "store", (unsigned long long)status->store.crowded_out,
                      status->store.crowded_out == 1 ? "" : "s", (unsigned long long)status->store.bytes,
                      (unsigned long long)status->store.budget);
    table_figures(status, out);
    buffer_printf(out, "%6s %6s %9s  %-10s %9s  %s\n", "RANK", "LOCAL", "PID", "STATE", "STEP", "LAST BEAT");
    for (int i = 0; i < status->worker_count; i++)
        table_worker(&status->workers[i], out);
}

void status_summary(const struct agent_status *status, struct buffer *out)
{
    buffer_printf(out, "%d\t%d\t%s\t", status->pid,
                  status->formed ? status->world.group_rank : status->node_rank,
                  worker_group_state_name(status->state));
    shown(out, status->job_id);
    buffer_text(out, "\n");
}
