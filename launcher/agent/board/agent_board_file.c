/* agent_board_file.c - the board's file in --state-dir: what an earlier agent of the job has kept, and what
 * this one keeps. See agent_board_internal.h. */
#include <string.h>

#include "launcher/agent/board/agent_board_internal.h"
#include "launcher/board/board_file.h"

static const int64_t write_patience_ns = 5 * NS_PER_S;

/* What an earlier agent has kept of the same job: this one goes on. */
static void go_on(struct agent *agent, struct board *earlier)
{
    struct agent_board *own = agent->board;
    struct board_round *last =
        earlier->round_count ? &earlier->rounds[earlier->round_count - 1] : &(struct board_round){0};
    if (last->stop_at < 0)
        last->stop_at = earlier->now;
    if (!*last->cause)
        board_text(last->cause, sizeof last->cause,
                   earlier->over ? earlier->verdict
                                 : "the agent that served the job died and was started again");
    board_history(own->board, earlier->rounds, earlier->round_count, earlier->started_at);
    board_points(own->board, -1, earlier->points, earlier->point_count);
}

static void loaded(void *context)
{
    struct agent *agent = context;
    struct agent_board *own = agent->board;
    const struct muster_error *err = board_file_error(own->earlier);
    struct board *earlier = board_file_take(own->earlier);
    if (err->code)
        log_warning(&agent->log, "what was kept of the job before is not shown: %s", err->text);
    if (earlier && own->board && !strcmp(earlier->job, own->board->job))
        go_on(agent, earlier);
    board_free(earlier);
    background_watch_end(&own->loading);
}

void agent_board_load(struct agent *agent)
{
    struct muster_error err = {0};
    struct agent_board *own = agent->board;
    struct background_job *job =
        board_file_load(agent->config->state_dir, own->board->job, &own->earlier, &err);
    if (background_watch_begin(&own->loading, &agent->loop, job, loaded, agent, &err) < 0)
        log_warning(&agent->log, "what was kept of the job before is not shown: %s", err.text);
}

static void saved(void *context)
{
    struct agent *agent = context;
    const struct muster_error *err = board_file_error(agent->board->file);
    if (err->code)
        log_warning(&agent->log, "the job's board is not saved: %s", err->text);
    background_watch_end(&agent->board->saving);
}

void agent_board_save(struct agent *agent)
{
    struct agent_board *own = agent->board;
    struct muster_error err = {0};
    if (own->saving.job || own->loading.job) /* not over what is not read yet */
        return;
    own->save_at = instant_add(clock_now(NULL), AGENT_BOARD_SAVE_NS);
    struct background_job *job =
        board_file_write(agent->config->state_dir, own->board, agent_board_now(agent), &own->file, &err);
    if (background_watch_begin(&own->saving, &agent->loop, job, saved, agent, &err) < 0)
        log_warning(&agent->log, "the job's board is not saved: %s", err.text);
}

bool agent_board_keeps_file(const struct agent *agent)
{
    return agent->config->state_dir && agent->board->board && agent->board->board->serves &&
           agent->board->board->round_count > 0;
}

/* The last one: waited for, within bounds. */
void agent_board_save_end(struct agent *agent)
{
    struct agent_board *own = agent->board;
    if (own->loading.job && background_job_wait(own->loading.job, write_patience_ns))
        loaded(agent);
    for (int i = 0; i < 2; i++) {
        if (own->saving.job && background_job_wait(own->saving.job, write_patience_ns))
            saved(agent);
        if (own->saving.job)
            return; /* the volume does not respond */
        if (i == 0)
            agent_board_save(agent);
    }
}
