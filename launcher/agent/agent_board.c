/* agent_board.c - what the job's page shows: this node on the agent's board, notes to the serving agent or
 * from the others, and the board's file. See agent_board.h. */
#include "launcher/agent/agent_board.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/board/board_file.h"
#include "launcher/board/board_json.h"
#include "launcher/loop/background_job.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/nccl/decide/decide.h"

static const int64_t sample_ns = NS_PER_S, save_every_ns = 10 * NS_PER_S, write_patience_ns = 5 * NS_PER_S;
enum { NOTES_A_TURN = 64, MEMORY_TEXT = 128 };

/* How a worker of this round ended; beside struct worker, which does not tell who ended it. */
enum ending { ENDING_NONE, ENDING_FAILED, ENDING_STOPPED };

struct agent_board {
    struct board *board; /* NULL: nobody looks */
    struct instant due;  /* of the next sample; long ago: something has happened */
    int64_t started_ms;  /* the board's time at agent->started */
    struct instant formed, stopping;
    int64_t start_ms, stopped_ms; /* as in board.h, of this node and round */
    unsigned char *endings;       /* enum ending; one for each worker */
    uint64_t told_session;        /* the server that has our whole curve */
    int64_t told_at;              /* time of the last point that it has */
    int64_t told_round;           /* when the last round formed that it has */
    /* the file */
    struct background_watch saving, loading;
    struct board_file *file, *earlier; /* of saving, of loading */
    struct instant save_at;
    /* the log's last warnings; any thread */
    bool taps;
    pthread_mutex_t lock;
    struct log_sink log; /* where they go on to */
    int warning_count;
    char warnings[BOARD_WARNINGS][BOARD_TEXT];
};

int64_t agent_board_now(const struct agent *agent)
{
    return agent->board->started_ms + instant_diff_ns(clock_now(NULL), agent->started) / NS_PER_MS;
}

static int64_t since_ms(struct instant later, struct instant earlier)
{
    return instant_diff_ns(later, earlier) / NS_PER_MS;
}

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
static void begin_tap(struct agent *agent)
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

/* Those that were decided on with the reason of each; the log has one line for all of them. */
static void add_decisions(const struct agent *agent, struct board_node *node)
{
    const struct decision_list *list = &agent->tune->decisions;
    for (int i = 0; i < list->count && node->warning_count < BOARD_WARNINGS; i++)
        if (list->items[i].kind == DECISION_WARNED)
            (void)text_append(node->warnings[node->warning_count++], BOARD_TEXT,
                              "NCCL: %s%s%.60s: %s", /* cut */
                              list->items[i].name, *list->items[i].value ? "=" : "", list->items[i].value,
                              list->items[i].reason);
}

static void copy_warnings(const struct agent *agent, struct board_node *node)
{
    struct agent_board *own = agent->board;
    if (!own->taps)
        return;
    add_decisions(agent, node);
    (void)pthread_mutex_lock(&own->lock);
    const int room = BOARD_WARNINGS - node->warning_count;
    for (int i = own->warning_count > room ? own->warning_count - room : 0; i < own->warning_count; i++)
        memcpy(node->warnings[node->warning_count++], own->warnings[i], BOARD_TEXT);
    (void)pthread_mutex_unlock(&own->lock);
}

/* --- this node --- */

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

/* What it wrote last, of both streams that pass through this agent. */
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

static int fill_node(struct agent *agent, struct board_node *node)
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
static void add_point(struct agent *agent, const struct board_node *node, int64_t now)
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

/* --- notes --- */

static void send_note(struct agent *agent, const struct board_node *node, int64_t now)
{
    struct agent_board *own = agent->board;
    const struct board *board = own->board;
    const uint64_t session = agent_membership_notes_wanted(agent);
    struct muster_error err = {0};
    scope_buffer text = {0};
    if (!session)
        return;
    if (session != own->told_session)
        own->told_at = own->told_round = -1; /* another server: all that we have */
    int first = 0, round = 0;
    while (first < board->point_count && board->points[first].at <= own->told_at)
        first++;
    while (round < board->round_count && board->rounds[round].formed_at <= own->told_round)
        round++;
    const int ended = board->round_count - 1 - round; /* the present one goes on */
    const struct board_note note = {.node = node,
                                    .points = board->points + first,
                                    .point_count = board->point_count - first,
                                    .rounds = board->rounds + round,
                                    .round_count = ended < 0                   ? 0
                                                   : ended < BOARD_NOTE_ROUNDS ? ended
                                                                               : BOARD_NOTE_ROUNDS,
                                    .started_at = board->started_at};
    if (board_note_write(&note, now, &text, &err) < 0) {
        log_debug(&agent->log, "%s", err.text);
        return;
    }
    agent_membership_note(agent, text.data, text.length);
    own->told_session = session;
    if (board->point_count)
        own->told_at = board->points[board->point_count - 1].at;
    if (note.round_count)
        own->told_round = note.rounds[note.round_count - 1].formed_at;
}

static void take_note(struct agent *agent, const struct membership_note *note, int64_t now)
{
    struct board *board = agent->board->board;
    struct board_note_read got;
    struct muster_error err = {0};
    if (board_note_read(note->data, note->length, now, &got, &err) < 0) {
        log_debug(&agent->log, "a note of member %d: %s", note->member, err.text);
        board_node_clear(&got.node);
        return;
    }
    got.node.member = note->member;
    board_take(board, &got.node, now);
    board_history(board, got.rounds, got.round_count, got.started_at);
    if (got.point_count > 1)
        board_points(board, note->member, got.points, got.point_count);
    for (int i = 0; i < got.point_count; i++)
        board_point(board, note->member, &got.points[i]);
}

static void take_notes(struct agent *agent, int limit)
{
    struct membership_note note;
    for (int i = 0; i < limit && agent_membership_take_note(agent, &note); i++) {
        if (agent->board->board)
            take_note(agent, &note, agent_board_now(agent));
        mem_free(note.data);
    }
}

/* --- a sample --- */

static void fill_job(struct agent *agent, struct board *board)
{
    const struct run_config *config = agent->config;
    board_text(board->state, sizeof board->state, worker_group_state_name(agent->group.state));
    board->waiting[0] = '\0';
    if (agent->group.state == GROUP_WAITING || agent->group.state == GROUP_OVER) {
        char text[MUSTER_ERROR_TEXT];
        agent_membership_describe(agent, text, sizeof text);
        board_text(board->waiting, sizeof board->waiting, text);
    }
    board->serves = agent->membership && agent_membership_serves(agent);
    if (!board->serves)
        board_text(board->server, sizeof board->server, config->master_addr ? config->master_addr : "");
}

static void sample(struct agent *agent)
{
    struct agent_board *own = agent->board;
    struct board_node node;
    const int64_t now = agent_board_now(agent);
    own->due = instant_add(clock_now(NULL), sample_ns);
    if (fill_node(agent, &node) < 0) {
        board_node_clear(&node);
        return;
    }
    fill_job(agent, own->board);
    add_point(agent, &node, now);
    send_note(agent, &node, now);
    board_take(own->board, &node, now);
}

static void note_world(struct agent *agent, const char *cause)
{
    const struct membership_world *world = &agent->round.world;
    board_world(agent->board->board,
                &(struct board_world){.epoch = world->id.epoch,
                                      .round = world->id.round,
                                      .restarts = world->restart_count,
                                      .nodes = world->group_world_size,
                                      .world_size = world->world_size,
                                      .cause = cause},
                agent_board_now(agent));
}

static int make_board(struct agent *agent)
{
    const struct run_config *config = agent->config;
    struct board *board = agent->board->board = board_create(agent_board_now(agent));
    if (!board)
        return -1;
    const char *slash = strrchr(config->program, '/');
    board_text(board->version, sizeof board->version, MUSTER_VERSION);
    board_text(board->job, sizeof board->job, config->rdzv_id ? config->rdzv_id : "");
    board_text(board->program, sizeof board->program, slash ? slash + 1 : config->program);
    board->min_nodes = config->min_nodes;
    board->max_nodes = config->max_nodes;
    board->max_restarts = config->max_restarts;
    if (agent->round.world.world_size > 0)
        note_world(agent, "");
    return 0;
}

struct board *agent_board(struct agent *agent)
{
    if (!agent->board->board && make_board(agent) < 0)
        return NULL;
    if (instant_reached(clock_now(NULL), agent->board->due))
        sample(agent);
    return agent->board->board;
}

/* --- the file --- */

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

static void load_earlier(struct agent *agent)
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

static void save(struct agent *agent)
{
    struct agent_board *own = agent->board;
    struct muster_error err = {0};
    if (own->saving.job || own->loading.job) /* not over what is not read yet */
        return;
    own->save_at = instant_add(clock_now(NULL), save_every_ns);
    struct background_job *job =
        board_file_write(agent->config->state_dir, own->board, agent_board_now(agent), &own->file, &err);
    if (background_watch_begin(&own->saving, &agent->loop, job, saved, agent, &err) < 0)
        log_warning(&agent->log, "the job's board is not saved: %s", err.text);
}

static bool keeps_file(const struct agent *agent)
{
    return agent->config->state_dir && agent->board->board && agent->board->board->serves &&
           agent->board->board->round_count > 0;
}

/* The last one: waited for, within bounds. */
static void save_end(struct agent *agent)
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
            save(agent);
    }
}

/* --- the part --- */

static int board_part_create(struct agent *agent, struct muster_error *err)
{
    const struct run_config *config = agent->config;
    struct agent_board *own = agent->board = mem_calloc(1, sizeof *own);
    if (!own)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the board");
    own->started_ms = clock_wall_ns() / NS_PER_MS - since_ms(clock_now(NULL), agent->started);
    own->start_ms = own->stopped_ms = own->told_at = own->told_round = -1;
    own->save_at = instant_add(agent->started, save_every_ns);
    own->endings = mem_calloc((size_t)agent->round.worker_count, 1);
    if (!own->endings || pthread_mutex_init(&own->lock, NULL))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the board");
    if (!config_shows_job(config))
        return 0;
    begin_tap(agent);
    if (make_board(agent) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the board");
    if (config->state_dir)
        load_earlier(agent);
    return 0;
}

static struct instant board_deadline(const struct agent *agent)
{
    const struct agent_board *own = agent->board;
    if (!own->board)
        return INSTANT_NEVER;
    return keeps_file(agent) && !own->saving.job && !own->loading.job ? instant_min(own->due, own->save_at)
                                                                      : own->due;
}

static void board_tick(struct agent *agent, struct instant now)
{
    struct agent_board *own = agent->board;
    if (!own->board && agent_membership_notes_wanted(agent) && make_board(agent) < 0)
        return;
    if (!own->board)
        return;
    take_notes(agent, NOTES_A_TURN);
    if (instant_reached(now, own->due))
        sample(agent);
    if (keeps_file(agent) && instant_reached(now, own->save_at))
        save(agent);
}

static void begin_round(struct agent *agent, const struct agent_event *event)
{
    struct agent_board *own = agent->board;
    own->formed = clock_now(NULL);
    own->stopping = (struct instant){0};
    own->start_ms = own->stopped_ms = -1;
    memset(own->endings, ENDING_NONE, (size_t)agent->round.worker_count);
    if (!own->board)
        return;
    take_notes(agent, INT32_MAX); /* of the last round: they were sent before this world */
    note_world(agent, event->membership->reason);
}

static void note_stop(struct agent *agent, bool planned, const char *cause)
{
    struct agent_board *own = agent->board;
    if (!own->stopping.ns)
        own->stopping = clock_now(NULL);
    if (own->board) {
        take_notes(agent, INT32_MAX);
        sample(agent); /* who failed, before the stop changes it */
        board_stop(own->board, planned, cause, agent_board_now(agent));
    }
}

static void board_event(struct agent *agent, const struct agent_event *event)
{
    struct agent_board *own = agent->board;
    switch (event->kind) {
    case AGENT_WORLD:
        begin_round(agent, event);
        break;
    case AGENT_STARTED:
        own->start_ms = since_ms(clock_now(NULL), own->formed);
        break;
    case AGENT_WORKER_ENDED:
        if (event->worker && event->failure)
            own->endings[event->worker->local_rank] = ENDING_FAILED;
        break;
    case AGENT_FAILURE:
        if (event->failure && event->failure->local_rank >= 0 &&
            event->failure->local_rank < agent->round.worker_count)
            own->endings[event->failure->local_rank] = ENDING_FAILED;
        break;
    case AGENT_STOP:
        note_stop(agent, event->membership->planned, event->membership->reason);
        break;
    case AGENT_VERDICT:
        note_stop(agent, false, "");
        if (own->board)
            board_verdict(own->board, event->membership->exit_code, event->membership->reason,
                          agent_board_now(agent));
        break;
    case AGENT_ROUND_ENDS:
        if (own->stopping.ns && own->stopped_ms < 0)
            own->stopped_ms = since_ms(clock_now(NULL), own->stopping);
        if (own->board && !agent->finished)
            sample(agent); /* the note comes before the report that all have stopped */
        return;
    case AGENT_ENDED:
        if (!own->board)
            return;
        take_notes(agent, INT32_MAX);
        sample(agent);
        if (!own->board->over)
            board_verdict(own->board, event->code, event->text ? event->text : agent->end_reason,
                          agent_board_now(agent));
        if (keeps_file(agent))
            save_end(agent);
        return;
    case AGENT_STATE:
        break;
    default:
        return;
    }
    own->due = (struct instant){0};
}

static void board_destroy(struct agent *agent)
{
    struct agent_board *own = agent->board;
    if (!own)
        return;
    if (own->taps)
        agent->log = own->log;
    background_watch_end(&own->saving);
    background_watch_end(&own->loading);
    board_free(own->board);
    mem_free(own->endings);
    (void)pthread_mutex_destroy(&own->lock);
    mem_free(own);
    agent->board = NULL;
}

const struct agent_part agent_board_part = {"board",    board_part_create, board_deadline,
                                            board_tick, board_event,       board_destroy};
