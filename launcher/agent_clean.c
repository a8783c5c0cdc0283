/* agent_clean.c - between two rounds: what the dead workers left behind is removed by a thread (cleanup.h).
 * See agent_internal.h. */
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/cleanup.h"

static const struct group_event cleaned_event = {.kind = GROUP_CLEANED};

void agent_stop_cleaning(struct agent *agent)
{
    if (!agent->cleaning)
        return;
    loop_remove(&agent->loop, &agent->cleaned);
    errand_release(agent->cleaning);
    agent->cleaning = NULL;
}

static void cleaned(void *context, uint32_t events)
{
    struct agent *agent = context;
    (void)events;
    if (!errand_is_done(agent->cleaning))
        return;
    if (agent->cleanup->count)
        log_info(&agent->log, "removed %d files of dead workers from /dev/shm: %s", agent->cleanup->count,
                 agent->cleanup->removed.data ? agent->cleanup->removed.data : "");
    agent_stop_cleaning(agent);
    agent_event(agent, &cleaned_event, NULL);
}

void agent_clean(struct agent *agent)
{
    struct muster_error err = {0};
    struct cleanup_scope scope = {.uid = geteuid(),
                                  .since_ns = agent->round_wall_ns,
                                  .dead = agent->dead,
                                  .dead_count = (size_t)agent->dead_count};
    agent->cleaning = cleanup_start(&scope, "/dev/shm", &agent->cleanup, &err);
    if (agent->cleaning) {
        agent->cleaned = (struct loop_source){errand_fd(agent->cleaning), cleaned, agent};
        if (loop_add(&agent->loop, &agent->cleaned, EPOLLIN, &err) == 0)
            return;
        errand_release(agent->cleaning);
        agent->cleaning = NULL;
    }
    log_warning(&agent->log, "%s", err.text); /* the next round starts all the same, at the deadline */
}
