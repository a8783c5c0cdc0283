/* agent_outcome.c - the report at the end of a job that failed. See agent_internal.h. */
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/report.h"
#include "proto/base/guard.h"

static bool same_worker(const struct worker_failure *a, const struct worker_failure *b)
{
    return a->rank == b->rank && a->pid == b->pid && a->group_rank == b->group_rank;
}

/* The verdict's cause and what else was seen here, once. */
static int collect_failures(const struct agent *agent, struct worker_failure *list)
{
    int count = 0;
    struct instant now = clock_now(NULL);
    bool caused = agent->judged && agent->verdict.failed;
    if (caused) { /* the server saw all failures and has decided: here it stays the first */
        list[count] = agent->verdict.failure;
        list[count++].age_ns = INT64_MAX / 2;
    }
    for (int i = 0; i < agent->failure_count; i++) {
        const struct observed_failure *seen = &agent->failures[i];
        if (caused && same_worker(&seen->failure, &list[0]))
            continue;
        list[count] = seen->failure;
        list[count++].age_ns = instant_diff_ns(now, seen->at);
    }
    return count;
}

void agent_print_outcome(struct agent *agent)
{
    scope_free struct worker_failure *list = mem_calloc(AGENT_FAILURES_KEPT + 1, sizeof *list);
    scope_buffer text = {0};
    int count = list ? collect_failures(agent, list) : 0;
    if (count && report_format(agent->config->program, list, count, &text) == 0)
        pump_print(agent->pump, STDERR_FILENO, text.data, text.length);
    else if (agent->judged && agent->verdict.exit_code)
        log_error(&agent->log, "%s", agent->verdict.reason);
}
