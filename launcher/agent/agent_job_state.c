/* agent_job_state.c - the job's state on a volume (job_state.h): read before there is a world, kept by the
 * agent that serves the job. Threads do the reading and writing; the volume may not answer. See
 * agent_internal.h.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"

static const int64_t read_patience_ns = 20 * NS_PER_S, write_patience_ns = 5 * NS_PER_S;

struct state_file {
    char *path, *directory;
    struct buffer text;
    bool found; /* by a read */
    struct muster_error err;
};

static void state_file_free(void *payload)
{
    struct state_file *file = payload;
    if (!file)
        return;
    mem_free(file->path);
    mem_free(file->directory);
    buffer_free(&file->text);
    mem_free(file);
}

static void read_file(void *payload)
{
    struct state_file *file = payload;
    if (io_make_directories(file->directory, 0777, &file->err) < 0)
        return;
    file->found = access(file->path, F_OK) == 0 || errno != ENOENT;
    if (file->found)
        (void)io_read_file(file->path, JOB_STATE_SIZE_LIMIT, &file->text, &file->err); /* err tells */
}

static void write_file(void *payload)
{
    struct state_file *file = payload;
    (void)io_write_file_atomic(file->path, file->text.data, file->text.length, 0666,
                               &file->err); /* err tells */
}

static struct state_file *make_file(const struct agent *agent, struct muster_error *err)
{
    struct state_file *file = mem_calloc(1, sizeof *file);
    if (file) {
        file->path = job_state_path(agent->config->state_dir, agent->config->rdzv_id);
        file->directory = mem_strdup(agent->config->state_dir);
    }
    if (file && file->path && file->directory)
        return file;
    state_file_free(file);
    error_set(err, MUSTER_E_NOMEM, "no memory for the job's state");
    return NULL;
}

/* --- before there is a world --- */

static int parse_found(struct agent *agent, const struct state_file *file, struct muster_error *err)
{
    struct muster_error why = {0};
    if (file->err.code)
        return error_set(err, (enum muster_error_code)file->err.code, "--state-dir: %s", file->err.text);
    if (!file->found)
        return 0;
    if (job_state_parse(file->text.data ? file->text.data : "", file->text.length, agent->config->rdzv_id,
                        &agent->state, &why) < 0)
        return error_set(err, MUSTER_E_INVALID,
                         "the job's state file %s is damaged: %s; remove it to begin the job anew",
                         file->path, why.text);
    return 1;
}

/* 1: there was one; 0: none; -1. */
static int read_state(struct agent *agent, struct muster_error *err)
{
    struct state_file *file = make_file(agent, err);
    struct background_job *errand =
        file ? background_job_start("reading the job's state", read_file, file, state_file_free, err) : NULL;
    if (!errand)
        return -1;
    int result = agent_await_errand(agent, errand, read_patience_ns, agent->config->state_dir, err);
    result = result < 0 ? error_wrap(err, "--state-dir") : parse_found(agent, file, err);
    background_job_release(errand);
    return result;
}

int agent_read_job(struct agent *agent, bool *over, struct muster_error *err)
{
    *over = false;
    agent->state = (struct job_state){.phase = JOB_LEFT};
    int found = agent->config->state_dir ? read_state(agent, err) : 0;
    *over = found > 0 && agent->state.phase == JOB_DONE;
    if (*over)
        log_info(&agent->log, "job %s is over, its exit code was %d (--state-dir)", agent->config->rdzv_id,
                 agent->state.exit_code);
    agent->resumes = found > 0;
    return found < 0 ? -1 : 0;
}

int agent_resume_job(struct agent *agent, struct muster_error *err)
{
    const char *job = agent->config->rdzv_id;
    const long long limit = (long long)agent->config->max_restarts;
    agent->serves = true;
    if (!agent->resumes)
        return 0;
    bool vanished = agent->state.phase == JOB_RUNS;
    if (job_state_resume(&agent->state, agent->config->max_restarts) == JOB_IS_SPENT) {
        agent_keep_end(agent);
        return error_set(
            err, MUSTER_E_STATE,
            "job %s: its last agent vanished without a word, and %lld of %lld restarts were used before", job,
            (long long)agent->state.restart_count - 1, limit);
    }
    log_info(&agent->log, "job %s goes on%s: %lld of %lld restarts are used", job,
             vanished ? " after an agent that vanished without a word, which costs one" : "",
             (long long)agent->state.restart_count, limit);
    return 0;
}

/* --- keeping it --- */

static void save(struct agent *agent);

static void take_saved(struct agent *agent)
{
    const struct state_file *file = agent->state_file;
    if (file->err.code)
        log_warning(&agent->log, "the job's state is not kept: %s", file->err.text);
    background_watch_end(&agent->saving);
}

static void saved(void *context)
{
    struct agent *agent = context;
    take_saved(agent);
    if (agent->save_again)
        save(agent);
}

/* One write at a time: an older one must not come last. */
static void save(struct agent *agent)
{
    struct muster_error err = {0};
    agent->save_again = agent->saving.errand != NULL;
    if (agent->save_again)
        return;
    struct state_file *file = make_file(agent, &err);
    if (file && job_state_format(&agent->state, agent->config->rdzv_id, &file->text) < 0) {
        state_file_free(file);
        file = NULL;
    }
    agent->state_file = file;
    struct background_job *errand =
        file ? background_job_start("keeping the job's state", write_file, file, state_file_free, &err)
             : NULL;
    if (background_watch_begin(&agent->saving, &agent->loop, errand, saved, agent, &err) < 0)
        log_warning(&agent->log, "the job's state is not kept: %s", *err.text ? err.text : "no memory");
}

void agent_keep_count(struct agent *agent)
{
    if (!agent->config->state_dir || !agent->serves)
        return;
    agent->state.phase = JOB_RUNS;
    agent->state.restart_count = agent->world.restart_count;
    save(agent);
}

/* Whether nobody is to run the job again: it succeeded, or a worker's or node's failure was the last that it
 * could have. */
static bool is_final(const struct agent *agent)
{
    return agent->judged && (agent->verdict.failed || agent->verdict.exit_code == EXIT_CODE_OK);
}

static void wait_saved(struct agent *agent)
{
    if (!agent->saving.errand)
        return;
    if (background_job_wait(agent->saving.errand, write_patience_ns)) {
        take_saved(agent);
        return;
    }
    log_warning(&agent->log, "the job's state is not kept: %s did not answer within %.4g s",
                agent->config->state_dir, (double)write_patience_ns / NS_PER_S);
    background_watch_end(&agent->saving);
    agent->state.phase = JOB_PHASE_COUNT; /* no second try: it would wait as long */
}

void agent_keep_end(struct agent *agent)
{
    bool spent = agent->state.phase == JOB_DONE;
    if (!agent->config->state_dir || !agent->serves || agent->state.phase == JOB_LEFT)
        return;
    wait_saved(agent);
    if (agent->state.phase == JOB_PHASE_COUNT)
        return;
    if (!spent) {
        agent->state.phase = is_final(agent) ? JOB_DONE : JOB_LEFT;
        agent->state.exit_code = is_final(agent) ? agent->verdict.exit_code : 0;
    }
    save(agent);
    wait_saved(agent);
}
