/* pod_table.c - see pod_table.h. */
#include "launcher/local/run/pod_table.h"

#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"

/* A missing pod was deleted, or never existed. */
static const char *end_of(const struct lifecycle_pod *pod)
{
    if (pod->state != POD_ABSENT)
        return pod_state_name(pod->state);
    return pod->first_start.ns == INSTANT_NEVER.ns ? "never created" : "deleted";
}

static double duration_s(const struct lifecycle_pod *pod, struct instant now)
{
    bool ended = pod->last_end.ns != INSTANT_NEVER.ns && !(pod->state == POD_RUNNING);
    if (pod->first_start.ns == INSTANT_NEVER.ns)
        return 0;
    return (double)instant_diff_ns(ended ? pod->last_end : now, pod->first_start) / (double)NS_PER_S;
}

static const char *condition_of(const struct lifecycle *life)
{
    const char *name = "not seen";
    for (int i = 0; i < life->conditions.count; i++)
        if (life->conditions.list[i].status)
            name = life->conditions.list[i].type == CONDITION_SUCCEEDED
                       ? local_kind_success(life->job->kind)
                       : condition_name(life->conditions.list[i].type);
    return name;
}

int pod_table_format(const struct lifecycle *life, struct instant now, struct buffer *out)
{
    int width = 3;
    for (int i = 0; i < life->pod_count; i++)
        if ((int)strlen(life->job->pods[i].name) > width)
            width = (int)strlen(life->job->pods[i].name);
    buffer_printf(out, "%-*s  %-13s  %-14s  %8s  %9s  %9s\n", width, "pod", "end", "exit code", "restarts",
                  "recreated", "seconds");
    for (int i = 0; i < life->pod_count; i++) {
        const struct lifecycle_pod *pod = &life->pods[i];
        bool spare = i >= life->job->pod_count && pod->first_start.ns == INSTANT_NEVER.ns;
        if (spare)
            continue;
        buffer_printf(out, "%-*s  %-13s", width, life->job->pods[i].name, end_of(pod));
        char scratch[16], text[40] = "-";
        int number = pod->exit_code - EXIT_CODE_SIGNAL_BASE;
        if (pod->has_code && number > 0)
            (void)snprintf(text, sizeof text, "%d (%s)", pod->exit_code,
                           failure_signal_name(number, scratch, sizeof scratch));
        else if (pod->has_code)
            (void)snprintf(text, sizeof text, "%d", pod->exit_code);
        buffer_printf(out, "  %-14s", text);
        buffer_printf(out, "  %8d  %9d  %9.1f\n", pod->restarts, pod->recreated, duration_s(pod, now));
    }
    const bool apart = life->job->apart && life->state == JOB_SUCCEEDED;
    return buffer_printf(out, "job %s: %s%s%s\n", life->job->name,
                         life->state == JOB_DELETED ? "deleted" : condition_of(life), apart ? ", but " : "",
                         apart ? life->job->apart : "");
}
