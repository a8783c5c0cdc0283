/* status_metrics.c - an agent's status in Prometheus' text format; see status.h. */
#include <string.h>

#include "launcher/status/status.h"

static void family(struct buffer *out, const char *name, const char *type, const char *help)
{
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct buffer *out, const char *name, double value, const char *help)
{
    family(out, name, "gauge", help);
    buffer_printf(out, "%s %.15g\n", name, value);
}

static void counter(struct buffer *out, const char *name, double value, const char *help)
{
    family(out, name, "counter", help);
    buffer_printf(out, "%s %.15g\n", name, value);
}

/* A label's value: backslash, quote and newline are escaped; other bytes are kept, UTF-8 as it is. */
static void label(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            buffer_text(out, "\\n");
        else if (*text == '\\' || *text == '"')
            buffer_printf(out, "\\%c", *text);
        else
            buffer_append(out, text, 1);
    }
}

static void info(const struct agent_status *status, struct buffer *out)
{
    family(out, "muster_agent_info", "gauge", "The agent, in labels; always 1.");
    buffer_text(out, "muster_agent_info{version=\"");
    label(out, status->version);
    buffer_text(out, "\",job_id=\"");
    label(out, status->job_id);
    buffer_text(out, "\",role=\"");
    label(out, status->role);
    buffer_text(out, "\",host=\"");
    label(out, status->host);
    buffer_text(out, "\"} 1\n");
}

static void round_failures(const struct agent_status *status, struct buffer *out)
{
    family(out, "muster_round_failures_total", "counter",
           "Rounds of the job that failed, by the class of their first cause.");
    for (int class_ = 0; class_ < FAILURE_CLASS_COUNT; class_++)
        buffer_printf(out, "muster_round_failures_total{cause=\"%s\"} %lld\n",
                      failure_class_name((enum failure_class)class_),
                      (long long)status->round_failures[class_]);
}

static void worker_counts(const struct agent_status *status, struct buffer *out)
{
    int counts[STATUS_WORKER_STATE_COUNT] = {0};
    for (int i = 0; i < status->worker_count; i++)
        counts[status->workers[i].state]++;
    family(out, "muster_workers", "gauge", "Workers of this node by state.");
    for (int state = 0; state < STATUS_WORKER_STATE_COUNT; state++)
        buffer_printf(out, "muster_workers{state=\"%s\"} %d\n", status_worker_state_name(state),
                      counts[state]);
}

static void beats(const struct agent_status *status, struct buffer *out)
{
    family(out, "muster_worker_step", "gauge",
           "Step of a worker's last heartbeat with a step; absent before.");
    for (int i = 0; i < status->worker_count; i++)
        if (status->workers[i].step >= 0)
            buffer_printf(out, "muster_worker_step{rank=\"%d\",local_rank=\"%d\"} %lld\n",
                          status->workers[i].rank, status->workers[i].local_rank,
                          (long long)status->workers[i].step);
    family(out, "muster_worker_beat_age_seconds", "gauge",
           "Seconds since a worker's last heartbeat; absent before its first.");
    for (int i = 0; i < status->worker_count; i++)
        if (status->workers[i].beat_age_ns >= 0)
            buffer_printf(out, "muster_worker_beat_age_seconds{rank=\"%d\",local_rank=\"%d\"} %.3f\n",
                          status->workers[i].rank, status->workers[i].local_rank,
                          (double)status->workers[i].beat_age_ns / (double)NS_PER_S);
}

/* As the workers have reported them; absent where none has. */
static void figures(const struct agent_status *status, struct buffer *out)
{
    for (int f = 0; f < FIGURE_COUNT; f++) {
        const struct figure_row *row = figure_row((enum figure)f);
        bool first = true;
        for (int i = 0; i < status->worker_count; i++) {
            const struct status_worker *worker = &status->workers[i];
            if (!worker->figures.there || !worker->figures.has[f])
                continue;
            if (first)
                family(out, row->metric, "gauge", row->help);
            first = false;
            buffer_printf(out, "%s{rank=\"%d\",local_rank=\"%d\"} %.9g\n", row->metric, worker->rank,
                          worker->local_rank, worker->figures.value[f] * row->factor);
        }
    }
}

/* Absent on nodes that serve no store. */
static void store_metrics(const struct status_store *store, struct buffer *out)
{
    if (!store->there)
        return;
    gauge(out, "muster_store_bytes", (double)store->bytes, "Memory of all clients of the workers' store.");
    gauge(out, "muster_store_bytes_budget", (double)store->budget, "Limit of that memory (--store-memory).");
    gauge(out, "muster_store_keys", (double)store->keys, "Keys in the workers' store.");
    gauge(out, "muster_store_connections", (double)store->connections, "Clients of the workers' store.");
    counter(out, "muster_store_requests_total", (double)store->requests, "Requests that the store served.");
    counter(out, "muster_store_closed_total", (double)store->closed,
            "Connections that the store closed: a limit, a broken protocol, a refused key.");
    counter(out, "muster_store_crowded_out_total", (double)store->crowded_out,
            "Clients that lost what they held since the memory of all was used up.");
}

void status_metrics(const struct agent_status *status, struct buffer *out)
{
    info(status, out);
    gauge(out, "muster_uptime_seconds", (double)status->uptime_ns / (double)NS_PER_S,
          "Seconds since the agent started.");
    family(out, "muster_agent_state", "gauge", "1 for the state of this node's workers.");
    for (int state = 0; state < GROUP_STATE_COUNT; state++)
        buffer_printf(out, "muster_agent_state{state=\"%s\"} %d\n", worker_group_state_name(state),
                      status->state == (enum worker_group_state)state);
    gauge(out, "muster_world_size", status->formed ? status->world.world_size : 0,
          "Workers of all nodes in the last world; 0 before the first.");
    gauge(out, "muster_nodes", status->formed ? status->world.group_world_size : 0,
          "Nodes in the last world; 0 before the first.");
    gauge(out, "muster_nodes_min", status->min_nodes, "Nodes that a world needs.");
    gauge(out, "muster_nodes_max", status->max_nodes, "Nodes that a world may have.");
    gauge(out, "muster_round", status->world.id.round, "Number of the last world, from 0.");
    counter(out, "muster_restarts_total", (double)status->world.restart_count,
            "Restarts of the job that counted against its limit.");
    gauge(out, "muster_restarts_budget", (double)status->max_restarts, "Restarts that the job may use.");
    counter(out, "muster_worker_failures_total", (double)status->failures,
            "Workers of this node that failed by themselves.");
    round_failures(status, out);
    family(out, "muster_log_lost_bytes_total", "counter",
           "Bytes of the workers' output that were dropped or refused on the way there.");
    buffer_printf(out, "muster_log_lost_bytes_total{to=\"file\"} %llu\n",
                  (unsigned long long)status->file_bytes_lost);
    buffer_printf(out, "muster_log_lost_bytes_total{to=\"console\"} %llu\n",
                  (unsigned long long)status->console_bytes_lost);
    store_metrics(&status->store, out);
    worker_counts(status, out);
    family(out, "muster_worker_up", "gauge", "1 while the worker runs.");
    for (int i = 0; i < status->worker_count; i++)
        buffer_printf(out, "muster_worker_up{rank=\"%d\",local_rank=\"%d\"} %d\n", status->workers[i].rank,
                      status->workers[i].local_rank, status->workers[i].state == STATUS_WORKER_RUNNING);
    beats(status, out);
    figures(status, out);
}
