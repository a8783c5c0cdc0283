/* agent_errors.c - the folder of the workers' error files where there is no log directory
 * (error_directory.h): made and taken back by threads where TMPDIR may lie on a network file system. See
 * agent_internal.h. */
#include <stdlib.h>
#include <string.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"
#include "launcher/verdict/error_directory.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t making_patience_ns = 5 * NS_PER_S, discarding_patience_ns = 5 * NS_PER_S;

struct folder {
    char *parent; /* of one to make; "": the usual */
    char *path;   /* of the one made, or to discard */
    bool keep;    /* the files that are in it */
};

static void free_folder(void *payload)
{
    struct folder *folder = payload;
    mem_free(folder->parent);
    mem_free(folder->path);
    mem_free(folder);
}

static void make(void *payload)
{
    struct folder *folder = payload;
    folder->path = error_directory_make(folder->parent);
}

static void discard(void *payload)
{
    const struct folder *folder = payload;
    error_directory_discard(folder->path, folder->keep);
}

int agent_make_error_directory(struct agent *agent, struct muster_error *err)
{
    const char *log_dir = agent->config->log_dir, *temporary = getenv("TMPDIR");
    if (log_dir && !strcmp(log_dir, "/dev/null"))
        return 0;
    agent->prompt_errors = error_directory_is_prompt(temporary);
    if (agent->prompt_errors) { /* a thread costs more than the folder */
        agent->error_directory = error_directory_make(temporary);
        return 0;
    }
    struct folder *folder = mem_calloc(1, sizeof *folder);
    if (!folder || !(folder->parent = mem_strdup(temporary ? temporary : ""))) {
        mem_free(folder);
        return error_set(err, MUSTER_E_NOMEM, "no memory for the folder of error files");
    }
    struct background_job *errand =
        background_job_start("making the folder of error files", make, folder, free_folder, err);
    if (!errand)
        return -1;
    int result = agent_await_errand(agent, errand, making_patience_ns, "the folder of error files", err);
    if (result == 0)
        agent->error_directory = take_pointer(&folder->path);
    background_job_release(errand);
    if (result < 0 && err->code == MUSTER_E_TIMEOUT) { /* workers run without, as on a read-only root */
        log_warning(&agent->log, "no error files of the workers: %s (TMPDIR)", err->text);
        error_clear(err);
        return 0;
    }
    return result;
}

void agent_discard_error_directory(struct agent *agent)
{
    if (!agent->error_directory)
        return;
    bool keep = false;
    for (int i = 0; i < agent->failure_count && agent->group.exit_code; i++)
        keep |= !agent->failures[i].failure.lost_node; /* there is nothing of that one */
    if (agent->prompt_errors) {
        error_directory_discard(agent->error_directory, keep);
        return;
    }
    struct folder *folder = mem_calloc(1, sizeof *folder);
    if (!folder)
        return; /* it stays */
    folder->path = take_pointer(&agent->error_directory);
    folder->keep = keep;
    struct background_job *errand =
        background_job_start("removing the folder of error files", discard, folder, free_folder, NULL);
    if (errand)
        (void)background_job_wait(errand, discarding_patience_ns); /* one that hangs is left to its thread */
    background_job_release(errand);
}
