/* agent_board_node.c - this agent's own node on the board (warnings, its ranks, their figures and last
 * lines), and the board's file. See agent_board_internal.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/board/agent_board_internal.h"
#include "launcher/board/board_json.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/nccl/decide/decide.h"

int64_t agent_board_now(const struct agent *agent)
{
    return agent->board->started_ms + instant_diff_ns(clock_now(NULL), agent->started) / NS_PER_MS;
}

enum { MEMORY_TEXT = 128 };

/* --- warnings --- */

static void add_warning(struct agent_board *own, const char *line, size_t length)
{
    length = length < BOARD_TEXT ? length : BOARD_TEXT - 1;
    for (int i = 0; i < own->warning_count; i++)
        if (!strncmp(own->warnings[i], line, length) && own->warnings[i][length] == '\0')
            return;
    if (own->warning_count == BOARD_WARNINGS)
        memmove(own->warnings[0], own->warnings[1], sizeof own->warnings - sizeof own->warnings[0]);
    else
        own->warning_count++;
    (void)snprintf(own->warnings[own->warning_count - 1], BOARD_TEXT, "%.*s", (int)length, line);
}

static void tap_log(void *context, enum log_level level, const char *line)
{
    static const char mark[] = "warning: ";
    struct agent_board *own = context;
    const char *text = strstr(line, mark);
    text = text ? text + sizeof mark - 1 : line;
    if (level == LOG_LEVEL_WARNING && strncmp(text, "NCCL: ", 6) != 0) { /* add_decisions has those */
        (void)pthread_mutex_lock(&own->lock);                            /* fails for an invalid lock only */
        add_warning(own, text, strlen(text));
        (void)pthread_mutex_unlock(&own->lock);
    }
    own->log.write(own->log.context, level, line);
}

/* What NCCL itself has warned of, once where all ranks say the same. */
static bool is_told(const struct agent_board *own, const char *text)
{
    for (int i = 0; i < own->warning_count; i++)
        if (strstr(own->warnings[i], text))
            return true;
    return false;
}

static void take_notable(struct agent *agent)
{
    struct agent_board *own = agent->board;
    char text[NOTABLE_TEXT], line[BOARD_TEXT];
    if (!own->taps)
        return;
    (void)pthread_mutex_lock(&own->lock);
    for (int i = 0; i < agent->round.worker_count; i++)
        for (int stream = STDOUT_FILENO; stream <= STDERR_FILENO; stream++)
            while (pump_notable(agent->round.workers[i].streams[stream], text))
                if (!is_told(own, text)) {
                    (void)snprintf(line, sizeof line, "rank %d: %s", agent->round.world.rank_base + i, text);
                    add_warning(own, line, strlen(line));
                }
    (void)pthread_mutex_unlock(&own->lock);
}

/* Before any thread that logs. */
void agent_board_tap(struct agent *agent)
{
    struct agent_board *own = agent->board;
    const char *line = agent->config->warnings ? agent->config->warnings : "";
    while (*line) {
        const size_t length = strcspn(line, "\n");
        add_warning(own, line, length);
        line += length + (line[length] == '\n');
    }
    own->log = agent->log;
    own->taps = true;
    agent->log.write = tap_log;
    agent->log.context = own;
}

static void copy_warnings(const struct agent *agent, struct board_node *node)
{
    struct agent_board *own = agent->board;
    if (!own->taps)
        return;
    /* Settings that were decided on, with the reason of each; the log has one line for all. */
    const struct decision_list *list = &agent->tune->decisions;
    for (int i = 0; i < list->count && node->warning_count < BOARD_WARNINGS; i++)
        if (list->items[i].kind == DECISION_WARNED)
            (void)text_append(node->warnings[node->warning_count++], BOARD_TEXT,
                              "NCCL: %s%s%.60s: %s", /* cut */
                              list->items[i].name, *list->items[i].value ? "=" : "", list->items[i].value,
                              list->items[i].reason);
    (void)pthread_mutex_lock(&own->lock);
    const int room = BOARD_WARNINGS - node->warning_count;
    for (int i = own->warning_count > room ? own->warning_count - room : 0; i < own->warning_count; i++)
        memcpy(node->warnings[node->warning_count++], own->warnings[i], BOARD_TEXT);
    (void)pthread_mutex_unlock(&own->lock);
}

/* --- ranks --- */

static int64_t since_ms(struct instant later, struct instant earlier)
{
    return instant_diff_ns(later, earlier) / NS_PER_MS;
}

static int64_t resident_bytes(pid_t pid)
{
    char path[64];
    scope_buffer text = {0};
    long long pages = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    if (io_read_file(path, MEMORY_TEXT, &text, NULL) < 0 || !text.data ||
        sscanf(text.data, "%*s %lld", &pages) != 1)
        return -1;
    return pages < 0 ? -1 : (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Its last lines, from both streams that pass through this agent. */
static char *last_lines(const struct worker *worker)
{
    char text[BOARD_LINES_BYTES] = "";
    size_t used = 0;
    for (int stream = STDOUT_FILENO; stream <= STDERR_FILENO; stream++) {
        char tail[4096 + 1] = "";
        pump_tail(worker->streams[stream], tail, sizeof tail);
        const size_t length = strlen(tail),
                     room = stream == STDOUT_FILENO ? BOARD_LINES_BYTES / 2 : BOARD_LINES_BYTES - used - 2;
        const char *from = length > room ? tail + length - room : tail;
        if (from > tail && strchr(from, '\n'))
            from = strchr(from, '\n') + 1;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used && *from ? "\n" : "", from);
        if (used >= sizeof text)
            used = sizeof text - 1;
    }
    return *text ? mem_strdup(text) : NULL; /* without memory they are not shown */
}

static void fill_rank(const struct agent *agent, int i, struct instant now, struct board_rank *out)
{
    const struct worker *worker = &agent->round.workers[i];
    const struct heartbeat *beat = &agent->round.beats[i];
    const bool exited = worker->end_code == CLD_EXITED;
    out->rank = agent->round.world.rank_base + i;
    if (!worker->pid)
        return; /* absent */
    out->pid = (int)worker->pid;
    out->figures = beat->figures;
    if (beat->last.ns) {
        out->step = beat->step;
        out->beat_ms = since_ms(now, beat->last);
    }
    if (beat->imported.ns)
        out->import_ms = since_ms(beat->imported, worker->begun);
    if (beat->first.ns) {
        out->first_ms = since_ms(beat->first, worker->begun);
        out->first_step = beat->first_step;
        out->first_beat_ms = since_ms(now, beat->first);
    }
    out->lines = last_lines(worker);
    const char *state = worker->alive ? "running" : exited && !worker->end_status ? "exited" : "stopped";
    if (agent->board->endings[i] == ENDING_FAILED)
        state = "failed";
    board_text(out->state, sizeof out->state, state);
    if (worker->alive) {
        out->memory = resident_bytes(worker->pid);
        return;
    }
    out->ended_ms = since_ms(now, worker->ended);
    out->exit_code = exited ? worker->end_status : -1;
    out->signal = exited ? 0 : worker->end_status;
}

int agent_board_fill_node(struct agent *agent, struct board_node *node)
{
    const struct round *round = &agent->round;
    const struct instant now = clock_now(NULL);
    const int count = round->worker_count < BOARD_NODE_RANKS ? round->worker_count : BOARD_NODE_RANKS;
    const bool formed = round->world.world_size > 0;
    if (board_node_init(node, count, NULL) < 0)
        return -1;
    board_text(node->host, sizeof node->host, agent->host);
    board_text(node->state, sizeof node->state, worker_group_state_name(agent->group.state));
    node->group_rank = formed ? round->world.group_rank : (int)agent->config->node_rank;
    node->round = formed ? (int64_t)round->world.id.round : -1;
    node->start_ms = agent->board->start_ms;
    node->stopped_ms = agent->board->stopped_ms;
    take_notable(agent);
    copy_warnings(agent, node);
    for (int i = 0; i < count; i++)
        fill_rank(agent, i, now, &node->ranks[i]);
    return 0;
}

static double figure_of(const struct worker_figures *figures, enum figure figure)
{
    return figures->there && figures->has[figure] ? figures->value[figure] : NAN;
}

/* The curve is that of the node's first rank with a step. */
void agent_board_add_point(struct agent *agent, const struct board_node *node, int64_t now)
{
    for (int i = 0; i < node->rank_count; i++) {
        const struct board_rank *rank = &node->ranks[i];
        if (rank->step < 0)
            continue;
        const struct board_point point = {.at = now,
                                          .step = rank->step,
                                          .loss = figure_of(&rank->figures, FIGURE_LOSS),
                                          .tokens_per_s = figure_of(&rank->figures, FIGURE_TOKENS_PER_S),
                                          .step_ms = figure_of(&rank->figures, FIGURE_STEP_MS),
                                          .exposed_ms = figure_of(&rank->figures, FIGURE_EXPOSED_MS)};
        board_point(agent->board->board, node->member, &point);
        return;
    }
}

/* --- the file --- */

static const int64_t write_patience_ns = 5 * NS_PER_S;

/* The board that an earlier agent has kept of the same job: this agent goes on. */
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
        log_warning(&agent->log, "the earlier board of the job is not shown: %s", err->text);
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
        log_warning(&agent->log, "the earlier board of the job is not shown: %s", err.text);
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
    if (own->saving.job || own->loading.job) /* the old file is not read yet */
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
