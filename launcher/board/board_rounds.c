/* board_rounds.c - the rounds of the job, from the first to the verdict, and the changes of its server. See
 * board.h. */
#include <string.h>

#include "launcher/board/board.h"

enum { SILENT_MS = 1500 };

struct board_round *board_present_round(struct board *board)
{
    return board->round_count ? &board->rounds[board->round_count - 1] : NULL;
}

/* The first round stays, the oldest of the others goes. */
static struct board_round *new_round(struct board *board)
{
    if (board->round_count == BOARD_ROUNDS) {
        memmove(&board->rounds[1], &board->rounds[2], (BOARD_ROUNDS - 2) * sizeof board->rounds[0]);
        board->round_count--;
        board->rounds_left_out++;
    }
    return &board->rounds[board->round_count++];
}

static int64_t at_least_0(int64_t value)
{
    return value > 0 ? value : 0;
}

/* The parts of the recovery that are over when the next world has formed. */
static void part_recovery(struct board *board, struct board_round *last, struct board_round *next)
{
    if (last->stop_at < 0) /* this agent was not told, or came later */
        return;
    if (last->failed_at < 0 && !last->planned) {
        /* A round that ended without a failure: the node with the longest silence is taken. */
        int64_t first = -1;
        for (int i = 0; i < board->node_count; i++) {
            const struct board_node *node = &board->nodes[i];
            if (node->member >= 0 && node->round == last->number &&
                last->stop_at - node->heard_at > SILENT_MS && (first < 0 || node->heard_at < first))
                first = node->heard_at;
        }
        last->failed_at = first;
    }
    if (last->failed_at < 0 && !last->planned && last->failed_late)
        last->failed_at = last->stop_at;
    if (last->failed_at >= 0)
        next->detect_ms = at_least_0(last->stop_at - last->failed_at);
    next->stop_ms = last->stopped_ms;
    if (last->stopped_ms >= 0)
        next->form_ms = at_least_0(next->formed_at - last->stop_at - last->stopped_ms);
}

/* Only nodes of the present world, and nodes that have not heard of it yet. */
static void drop_old_nodes(struct board *board, int64_t round)
{
    int kept = 0;
    for (int i = 0; i < board->node_count; i++) {
        struct board_node *node = &board->nodes[i];
        if (node->member >= 0 && node->round >= 0 && node->round < round - 1) {
            board->ranks_total -= node->rank_count;
            board_node_clear(node);
        } else {
            board->nodes[kept++] = *node;
        }
    }
    board->node_count = kept;
    board_forget_sums_before(board, round - 1);
}

void board_world(struct board *board, const struct board_world *world, int64_t now)
{
    struct board_round last = {.stop_at = -1};
    struct board_round *before = board_present_round(board);
    board->now = now;
    if (before && before->earlier)
        before = NULL;
    if (before && before->number == world->round && before->formed_at == now)
        return;
    if (before && world->cause && *world->cause)
        board_text(before->cause, sizeof before->cause, world->cause);
    if (before)
        last = *before;
    if (before && before->stop_at < 0) /* nobody stopped it: its server was lost */
        before->stop_at = now;
    struct board_round *round = new_round(board);
    *round = (struct board_round){.epoch = world->epoch,
                                  .number = world->round,
                                  .formed_at = now,
                                  .stop_at = -1,
                                  .failed_at = -1,
                                  .nodes = world->nodes,
                                  .world_size = world->world_size,
                                  .restarts = world->restarts,
                                  .stopped_ms = -1,
                                  .detect_ms = -1,
                                  .stop_ms = -1,
                                  .form_ms = -1,
                                  .start_ms = -1,
                                  .import_ms = -1,
                                  .first_ms = -1,
                                  .first_step = -1,
                                  .last_step = -1,
                                  .first_step_at = -1,
                                  .last_step_at = -1};
    part_recovery(board, &last, round);
    drop_old_nodes(board, world->round);
}

void board_stop(struct board *board, bool planned, const char *cause, int64_t now)
{
    struct board_round *round = board_present_round(board);
    board->now = now;
    if (!round || round->stop_at >= 0)
        return;
    round->stop_at = now;
    round->planned = planned;
    if (cause && *cause)
        board_text(round->cause, sizeof round->cause, cause);
}

void board_server_moved(struct board *board, const char *server, const char *reason, int64_t now)
{
    const struct board_change *last = board->change_count ? &board->changes[board->change_count - 1] : NULL;
    if (last && !strcmp(last->server, server))
        return; /* while there is none, voters stand and give up */
    if (board->change_count == BOARD_CHANGES)
        memmove(&board->changes[0], &board->changes[1],
                (size_t)--board->change_count * sizeof *board->changes);
    struct board_change *change = &board->changes[board->change_count++];
    change->at = now;
    board_text(change->server, sizeof change->server, server);
    board_text(change->reason, sizeof change->reason, reason);
    board_text(board->server, sizeof board->server, server);
}

void board_verdict(struct board *board, int exit_code, const char *cause, int64_t now)
{
    struct board_round *round = board_present_round(board);
    board->now = now;
    board->over = true;
    board->exit_code = exit_code;
    board_text(board->verdict, sizeof board->verdict, cause ? cause : "");
    if (round && round->stop_at < 0) {
        round->stop_at = now;
        if (cause && *cause)
            board_text(round->cause, sizeof round->cause, cause);
    }
}

static bool is_known(const struct board *board, const struct board_round *round)
{
    for (int i = 0; i < board->round_count; i++)
        if (board->rounds[i].epoch == round->epoch && board->rounds[i].number == round->number)
            return true;
    return false;
}

/* Before the first that formed later; where all places are taken the second goes, as with new ones. */
static void insert_round(struct board *board, const struct board_round *round)
{
    int at = 0;
    while (at < board->round_count && board->rounds[at].formed_at <= round->formed_at)
        at++;
    if (at > 0 && at == board->round_count && board->rounds[at - 1].stop_at < 0) /* the present one is ours */
        return;
    if (board->round_count == BOARD_ROUNDS) {
        board->rounds_left_out++;
        if (at == 1) /* it would go itself */
            return;
        const int gone = at ? 1 : 0; /* our first is no first any more */
        memmove(&board->rounds[gone], &board->rounds[gone + 1],
                (size_t)(BOARD_ROUNDS - 1 - gone) * sizeof board->rounds[0]);
        board->round_count--;
        at -= at ? 1 : 0;
    }
    memmove(&board->rounds[at + 1], &board->rounds[at],
            (size_t)(board->round_count - at) * sizeof board->rounds[0]);
    board->round_count++;
    board->rounds[at] = *round;
    board->rounds[at].earlier = true;
    if (board->rounds[at].stop_at < 0)
        board->rounds[at].stop_at = board->rounds[at + 1 < board->round_count ? at + 1 : at].formed_at;
}

void board_history(struct board *board, const struct board_round *rounds, int count, int64_t started_at)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        if (!is_known(board, &rounds[i])) {
            insert_round(board, &rounds[i]);
            any = true;
        }
    if (any && started_at < board->started_at)
        board->started_at = started_at;
}
