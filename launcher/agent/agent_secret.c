/* agent_secret.c - the job's secret in the agent: read once, at the start, and what is said where there is
 * none. See agent_internal.h. */
#include <string.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/resolver.h"
#include "proto/base/error.h"
#include "rendezvous/security/secret_file.h"

/* No core file of the agent may hold the keys, which libzmq keeps too. 1 and not 0: a handler in core_pattern
 * is called for 0 as well. Workers get the limit that we got. */
static int forbid_core_dumps(struct agent *agent, struct muster_error *err)
{
    if (getrlimit(RLIMIT_CORE, &agent->core_dumps) < 0)
        return error_errno(err, "getrlimit");
    struct rlimit none = {agent->core_dumps.rlim_max ? 1 : 0, agent->core_dumps.rlim_max};
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return error_errno(err, "cannot forbid core dumps");
    return 0;
}

int agent_read_secret(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct job_secret secret;
    enum secret_exposure exposure;
    mode_t mode;
    if (!config->secret_file || config->max_nodes == 1)
        return 0;
    if (forbid_core_dumps(agent, err) < 0 ||
        secret_file_read(config->secret_file, &secret, &exposure, &mode, err) < 0)
        return -1;
    if (exposure != SECRET_PRIVATE)
        log_warning(&agent->log, "secret file %s has mode %04o, %s: chmod 600 makes it private",
                    config->secret_file, (unsigned)mode, secret_exposure_words(exposure));
    int failed = secret_derive(&secret, config->rdzv_id, &agent->keys, err);
    agent->has_keys = !failed;
    secret_wipe(&secret, sizeof secret);
    return failed;
}

void agent_warn_of_strangers(const struct agent *agent, const char *address)
{
    if (agent->has_keys || !strncmp(address, "127.", 4) || !strcmp(address, "::1"))
        return;
    log_warning(
        &agent->log,
        "this job has no secret: WHOEVER REACHES PORT %u OF THIS MACHINE CAN JOIN THE JOB OR END IT. Give "
        "all nodes --secret-file (muster secret makes one); --require-auth makes this an error",
        (unsigned)agent_master_port(agent));
}
