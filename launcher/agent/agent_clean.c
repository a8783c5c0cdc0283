/* agent_clean.c - between two rounds: what the dead workers left behind is removed by a thread
 * (shm_cleanup.h). See agent_internal.h. */
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/process/shm_cleanup.h"

static const struct worker_group_event cleaned_event = {.kind = GROUP_CLEANED};

void agent_stop_cleaning(struct agent *agent)
{
    background_watch_end(&agent->cleaning);
}

static void cleaned(void *context)
{
    struct agent *agent = context;
    if (agent->cleanup->count)
        log_info(&agent->log, "removed %d files of dead workers from /dev/shm: %s", agent->cleanup->count,
                 agent->cleanup->removed.data ? agent->cleanup->removed.data : "");
    agent_stop_cleaning(agent);
    agent_event(agent, &cleaned_event, NULL);
}

void agent_clean(struct agent *agent)
{
    struct muster_error err = {0};
    struct shm_cleanup_scope scope = {.uid = geteuid(),
                                      .since_ns = agent->round_wall_ns,
                                      .dead = agent->dead,
                                      .dead_count = (size_t)agent->dead_count};
    struct background_job *errand = shm_cleanup_start(&scope, "/dev/shm", &agent->cleanup, &err);
    if (background_watch_begin(&agent->cleaning, &agent->loop, errand, cleaned, agent, &err) < 0)
        log_warning(&agent->log, "%s", err.text); /* the next round starts all the same, at the deadline */
}
