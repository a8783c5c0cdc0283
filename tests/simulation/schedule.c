/* schedule.c - running a schedule. See schedule.h. */
#include "tests/simulation/schedule.h"

#include <stdio.h>

void schedule_run(const struct schedule *schedule, struct outcome *outcome, struct buffer *trace)
{
    struct cluster_options options = schedule->options;
    options.trace = trace != NULL;
    struct cluster *cluster = cluster_create(&options);
    bool calms = false;
    for (int i = 0; i < schedule->count; i++) {
        const struct schedule_step *step = &schedule->steps[i];
        if (step->in)
            cluster_step_in(cluster, step->at_ms, (enum roster_job_state)(step->in - 1), step->kind,
                            step->node, step->value);
        else
            cluster_step(cluster, step->at_ms, step->kind, step->node, step->value);
        calms |= step->kind == STEP_CALM;
    }
    cluster_run(cluster, schedule->until_ms);
    if (calms)
        cluster_check_end(cluster);
    const char *text;
    const struct roster *roster = cluster_roster(cluster);
    *outcome = (struct outcome){.broken = cluster_broken(cluster, &text),
                                .events = cluster_events(cluster),
                                .state = roster ? roster_state(roster) : JOB_FORMING,
                                .code = roster ? roster_verdict_code(roster) : 0,
                                .restarts = roster ? roster_restart_count(roster) : 0,
                                .digest = cluster_digest(cluster)};
    (void)snprintf(outcome->text, sizeof outcome->text, "%s", text ? text : "");
    if (trace)
        buffer_printf(trace, "%s", cluster_trace(cluster));
    cluster_destroy(cluster);
}
