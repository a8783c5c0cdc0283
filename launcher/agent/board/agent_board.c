/* agent_board.c - the data of the job's page: the agent's board, brought up to date each second and at
 * events. See agent_board.h. */
#include "launcher/agent/board/agent_board.h"

#include <string.h>

#include "launcher/agent/agent_membership.h"
#include "launcher/agent/board/agent_board_internal.h"
#include "launcher/board/board_json.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { NOTES_A_TURN = 64 };

static int64_t since_ms(struct instant later, struct instant earlier)
{
    return instant_diff_ns(later, earlier) / NS_PER_MS;
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

/* In a job that no other node can serve, the server is known by the endpoint's name alone. */
static void fill_serving(const struct agent *agent, struct board *board)
{
    struct membership_serving serving;
    const char *endpoint = agent->config->master_addr;
    agent_membership_serving(agent, &serving);
    if (serving.server[0])
        board_text(board->server, sizeof board->server, serving.server);
    else if (!board->serves && !board->change_count)
        board_text(board->server, sizeof board->server, endpoint);
    board->voter_count = serving.voter_count < BOARD_VOTERS ? serving.voter_count : BOARD_VOTERS;
    for (int i = 0; i < board->voter_count; i++)
        board_text(board->voters[i], sizeof board->voters[i], serving.voters[i]);
}

static void sample(struct agent *agent)
{
    struct agent_board *own = agent->board;
    struct board_node node;
    const int64_t now = agent_board_now(agent);
    own->due = instant_add(clock_now(NULL), board_sample_ms(own->board->max_nodes) * NS_PER_MS);
    if (agent_board_fill_node(agent, &node) < 0) {
        board_node_clear(&node);
        return;
    }
    board_text(own->board->state, sizeof own->board->state, worker_group_state_name(agent->group.state));
    own->board->waiting[0] = '\0';
    if (agent->group.state == GROUP_WAITING || agent->group.state == GROUP_OVER) {
        char text[MUSTER_ERROR_TEXT];
        agent_membership_describe(agent, text, sizeof text);
        board_text(own->board->waiting, sizeof own->board->waiting, text);
    }
    own->board->serves = agent->membership && agent_membership_serves(agent);
    fill_serving(agent, own->board);
    agent_board_add_point(agent, &node, now);
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

static void note_server(struct agent *agent)
{
    struct membership_serving serving;
    agent_membership_serving(agent, &serving);
    if (agent->board->board || make_board(agent) == 0) /* failure.json lists the changes, too */
        board_server_moved(agent->board->board, serving.server, serving.reason, agent_board_now(agent));
}

const struct board *agent_board_kept(const struct agent *agent)
{
    return agent->board ? agent->board->board : NULL;
}

struct board *agent_board(struct agent *agent)
{
    if (!agent->board->board && make_board(agent) < 0)
        return NULL;
    if (instant_reached(clock_now(NULL), agent->board->due))
        sample(agent);
    return agent->board->board;
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
    own->save_at = instant_add(agent->started, AGENT_BOARD_SAVE_NS);
    own->endings = mem_calloc((size_t)agent->round.worker_count, 1);
    if (!own->endings || pthread_mutex_init(&own->lock, NULL))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the board");
    if (!config_shows_job(config))
        return 0;
    agent_board_tap(agent);
    if (make_board(agent) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the board");
    if (config->state_dir)
        agent_board_load(agent);
    return 0;
}

static struct instant board_deadline(const struct agent *agent)
{
    const struct agent_board *own = agent->board;
    if (!own->board)
        return INSTANT_NEVER;
    return agent_board_keeps_file(agent) && !own->saving.job && !own->loading.job
               ? instant_min(own->due, own->save_at)
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
    if (agent_board_keeps_file(agent) && instant_reached(now, own->save_at))
        agent_board_save(agent);
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
    take_notes(agent, INT32_MAX); /* the last round's: they were sent before this world */
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
        if (agent_board_keeps_file(agent))
            agent_board_save_end(agent);
        return;
    case AGENT_SERVER_MOVED:
        note_server(agent);
        break;
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
