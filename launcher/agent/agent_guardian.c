/* agent_guardian.c - keeps a guardian (guardian.h) beside the agent. See agent_internal.h. */
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { GUARDIANS_LIMIT = 4 };

/* Where it is empty: what is in it is for those who look later. */
static void remove_error_directory(const void *folder)
{
    if (folder && *(const char *)folder == '/')
        (void)rmdir(folder);
}

static int start_guardian(struct agent *agent, struct muster_error *err)
{
    if (getpid() == 1)
        return 0; /* the kernel kills the whole namespace with its init */
    size_t count;
    scope_free struct descendants_session *sessions = agent_list_sessions(agent, &count);
    if (!sessions)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start the guardian");
    struct guardian_task task = {.id = agent->id,
                                 .sessions = sessions,
                                 .session_count = count,
                                 .afterwards = remove_error_directory,
                                 .context = agent->error_directory};
    if (guardian_start(&task, &agent->guardian, err) < 0)
        return -1;
    agent->guardians++;
    return 0;
}

static void guardian_gone(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct muster_error err = {0};
    (void)events; /* EPOLLERR: nobody has the read end any more */
    loop_remove(&agent->loop, &agent->guard);
    guardian_dismiss(&agent->guardian);
    if (agent->guardians >= GUARDIANS_LIMIT || agent_watch_guardian(agent, &err) < 0)
        log_warning(&agent->log,
                    "the guardian process was killed and there is no other%s%s: if this agent is killed too, "
                    "processes of the workers may stay",
                    *err.text ? ": " : "", err.text);
}

/* Goes on without what an emulator lacks, and says so. */
static int warn_of_unsupported(struct agent *agent, struct muster_error *err)
{
    if (err->code != MUSTER_E_UNSUPPORTED)
        return -1;
    log_warning(&agent->log, "%s", err->text);
    return 0;
}

int agent_adopt_orphans(struct agent *agent, struct muster_error *err)
{
    return guardian_adopt_orphans(err) < 0 ? warn_of_unsupported(agent, err) : 0;
}

int agent_watch_guardian(struct agent *agent, struct muster_error *err)
{
    if (start_guardian(agent, err) < 0)
        return warn_of_unsupported(agent, err);
    agent->guard = (struct loop_source){agent->guardian.fd, guardian_gone, agent};
    return agent->guardian.pid ? loop_add(&agent->loop, &agent->guard, 0, err) : 0;
}
