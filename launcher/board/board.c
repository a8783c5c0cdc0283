/* board.c - the nodes of the job, their ranks and curves, and values derived from them. See board.h. */
#include "launcher/board/board.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/policy/goodput.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"

enum { FIRST_GAP_MS = 1000 };

void board_text(char *out, size_t size, const char *text)
{
    const size_t length = strnlen(text ? text : "", size - 1);
    memcpy(out, text ? text : "", length);
    out[length] = '\0';
}

struct board *board_create(int64_t now)
{
    struct board *board = mem_calloc(1, sizeof *board);
    if (!board)
        return NULL;
    board->started_at = board->now = now;
    board->point_gap_ms = FIRST_GAP_MS;
    board->point_member = -2;
    return board;
}

void board_node_clear(struct board_node *node)
{
    for (int i = 0; i < node->rank_count; i++)
        mem_free(node->ranks[i].lines);
    mem_free(node->ranks);
    *node = (struct board_node){0};
}

void board_free(struct board *board)
{
    if (!board)
        return;
    for (int i = 0; i < board->node_count; i++)
        board_node_clear(&board->nodes[i]);
    mem_free(board->nodes);
    mem_free(board->sums);
    mem_free(board);
}

int board_node_init(struct board_node *node, int rank_count, struct muster_error *err)
{
    *node = (struct board_node){
        .member = -1, .group_rank = -1, .round = -1, .heard_at = -1, .start_ms = -1, .stopped_ms = -1};
    if (rank_count < 0 || rank_count > BOARD_NODE_RANKS)
        return error_set(err, MUSTER_E_LIMIT, "a node of %d ranks; %d can be shown", rank_count,
                         BOARD_NODE_RANKS);
    node->ranks = mem_calloc((size_t)rank_count + 1, sizeof *node->ranks);
    if (!node->ranks)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the state of %d ranks", rank_count);
    node->rank_count = rank_count;
    for (int i = 0; i < rank_count; i++) {
        struct board_rank *rank = &node->ranks[i];
        rank->step = rank->beat_ms = rank->memory = rank->import_ms = rank->first_ms = rank->ended_ms = -1;
        rank->first_step = rank->first_beat_ms = -1;
        rank->local_rank = i;
        (void)snprintf(rank->state, sizeof rank->state, "absent");
    }
    return 0;
}

/* --- a node's state --- */

struct board_node *board_find(struct board *board, int member)
{
    for (int i = 0; i < board->node_count; i++)
        if (board->nodes[i].member == member)
            return &board->nodes[i];
    return NULL;
}

static int by_group_rank(const void *a, const void *b)
{
    const struct board_node *one = a, *other = b;
    if ((one->group_rank < 0) != (other->group_rank < 0))
        return one->group_rank < 0 ? 1 : -1;
    if (one->group_rank != other->group_rank)
        return one->group_rank < other->group_rank ? -1 : 1;
    return one->member < other->member ? -1 : one->member > other->member;
}

/* Where this member's state goes; NULL: no room. */
static struct board_node *place_for(struct board *board, const struct board_node *node)
{
    struct board_node *place = board_find(board, node->member);
    int before = place ? place->rank_count : 0;
    const int room = board_block_of(node).failed ? BOARD_RANKS + BOARD_FAILED_RANKS : BOARD_RANKS;
    if (board->ranks_total - before + node->rank_count > room)
        return NULL;
    if (!place && board->node_count == BOARD_NODES)
        return NULL;
    if (!place) {
        struct board_node *more =
            mem_realloc(board->nodes, (size_t)board->node_count + 1, sizeof *board->nodes);
        if (!more)
            return NULL;
        board->nodes = more;
        place = &more[board->node_count++];
        *place = (struct board_node){0};
    }
    board->ranks_total += node->rank_count - before;
    return place;
}

static void longest(int64_t *of, int64_t value)
{
    if (value > *of)
        *of = value;
}

/* Updates the round by the state of one node. */
static void note_round(struct board *board, const struct board_node *node, int64_t now)
{
    struct board_round *round = board_present_round(board);
    if (!round || node->round != round->number)
        return;
    longest(&round->start_ms, node->start_ms);
    longest(&round->stopped_ms, node->stopped_ms);
    for (int i = 0; i < node->rank_count; i++) {
        const struct board_rank *rank = &node->ranks[i];
        longest(&round->import_ms, rank->import_ms);
        if (rank->first_ms >= 0) /* the time after the import */
            longest(&round->first_ms, rank->first_ms - (rank->import_ms > 0 ? rank->import_ms : 0));
        if (!strcmp(rank->state, "failed") && rank->ended_ms >= 0) {
            /* A failed rank: its end is known by its age when the state was written, and so appears too late
             * by the time that the state was on its way. A failure that appears after the stop may be its
             * cause or its consequence: it counts where nothing else is known (part_recovery). */
            int64_t ended = now - rank->ended_ms;
            if (round->stop_at >= 0 && ended > round->stop_at)
                round->failed_late = true;
            else if (round->failed_at < 0 || ended < round->failed_at)
                round->failed_at = ended;
        }
        if (rank->step < 0)
            continue;
        const bool first = rank->first_step >= 0 && rank->first_beat_ms >= 0;
        const int64_t first_step = first ? rank->first_step : rank->step;
        if (round->first_step < 0 || first_step < round->first_step) {
            round->first_step = first_step;
            round->first_step_at = now - (first               ? rank->first_beat_ms
                                          : rank->beat_ms > 0 ? rank->beat_ms
                                                              : 0);
        }
        if (rank->step > round->last_step) {
            round->last_step = rank->step;
            round->last_step_at = now - (rank->beat_ms > 0 ? rank->beat_ms : 0);
        }
    }
}

static void note_slow(struct board *board, const struct board_node *node)
{
    for (int i = 0; i < node->rank_count; i++) {
        const struct worker_figures *figures = &node->ranks[i].figures;
        if (!figures->there || !figures->has[FIGURE_SLOW_RANK] || figures->value[FIGURE_SLOW_RANK] < 0)
            continue;
        struct board_rank *slow =
            (struct board_rank *)board_rank_find(board, (int)figures->value[FIGURE_SLOW_RANK]);
        if (slow)
            slow->slow_seen++;
        return; /* the ranks of a node say the same */
    }
}

void board_take(struct board *board, struct board_node *node, int64_t now)
{
    board->now = now;
    struct board_node *place = place_for(board, node);
    if (!place) {
        note_round(board, node, now);
        board->left_out += !board_keep_sum(board, node, now);
        board_node_clear(node);
        return;
    }
    board_forget_sum(board, node->group_rank);
    for (int i = 0; i < node->rank_count && i < place->rank_count; i++)
        if (place->ranks[i].rank == node->ranks[i].rank)
            node->ranks[i].slow_seen = place->ranks[i].slow_seen;
    board_node_clear(place);
    *place = *node;
    *node = (struct board_node){0};
    place->heard_at = now;
    note_round(board, place, now);
    const int member = place->member;
    qsort(board->nodes, (size_t)board->node_count, sizeof *board->nodes, by_group_rank);
    note_slow(board, board_find(board, member));
}

/* --- curves --- */

static int group_rank_of(struct board *board, int member)
{
    const struct board_node *node = board_find(board, member);
    return node && node->group_rank >= 0 ? node->group_rank : BOARD_NODES;
}

void board_point(struct board *board, int member, const struct board_point *point)
{
    const struct board_point *last = board->point_count ? &board->points[board->point_count - 1] : NULL;
    if (member != board->point_member &&
        group_rank_of(board, member) > group_rank_of(board, board->point_member) && board->point_member > -2)
        return;
    if (last && (point->at - last->at < board->point_gap_ms || point->step == last->step))
        return;
    board->point_member = member;
    if (board->point_count == BOARD_POINTS) {
        /* Every other point goes; the last stays. */
        int kept = 0;
        for (int i = 1 - board->point_count % 2; i < board->point_count; i += 2)
            board->points[kept++] = board->points[i];
        board->point_count = kept;
        board->point_gap_ms *= 2;
    }
    board->points[board->point_count++] = *point;
}

void board_points(struct board *board, int member, const struct board_point *points, int count)
{
    if (!count || (board->point_count && board->points[0].at <= points[0].at))
        return;
    const int64_t first = board->point_count ? board->points[0].at : INT64_MAX;
    struct board_point kept[BOARD_POINTS];
    const int kept_count = board->point_count, before = board->point_member;
    memcpy(kept, board->points, (size_t)kept_count * sizeof kept[0]);
    board->point_count = 0;
    board->point_member = member;
    for (int i = 0; i < count && points[i].at < first; i++)
        board_point(board, member, &points[i]);
    for (int i = 0; i < kept_count; i++)
        board_point(board, member, &kept[i]);
    if (kept_count)
        board->point_member = before;
}

/* --- derived values --- */

const struct board_rank *board_rank_find(const struct board *board, int rank)
{
    const struct board_node *fresh = NULL;
    const struct board_rank *found = NULL;
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++)
            if (board->nodes[i].ranks[j].rank == rank && (!fresh || board->nodes[i].round > fresh->round)) {
                fresh = &board->nodes[i];
                found = &fresh->ranks[j];
            }
    return found;
}

bool board_steps(const struct board *board, int64_t *lowest, int64_t *highest)
{
    *lowest = *highest = -1;
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++) {
            const int64_t step = board->nodes[i].ranks[j].step;
            if (step < 0)
                continue;
            if (*lowest < 0 || step < *lowest)
                *lowest = step;
            if (step > *highest)
                *highest = step;
        }
    const struct board_block rest = board_total(board, 0); /* with nodes whose ranks are not here */
    if (rest.low_step >= 0) {
        *lowest = rest.low_step;
        *highest = rest.high_step;
    }
    return *highest >= 0;
}

const struct board_rank *board_slowest(const struct board *board)
{
    const struct board_rank *most = NULL;
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++) {
            const struct board_rank *rank = &board->nodes[i].ranks[j];
            if (rank->slow_seen > 0 && (!most || rank->slow_seen > most->slow_seen))
                most = rank;
        }
    return most;
}

double board_goodput(const struct board *board, int64_t now)
{
    struct goodput_round rounds[BOARD_ROUNDS];
    for (int i = 0; i < board->round_count; i++) {
        const struct board_round *round = &board->rounds[i];
        rounds[i] = (struct goodput_round){round->first_step, round->last_step, round->first_step_at,
                                           round->last_step_at};
    }
    return goodput_of(rounds, board->round_count, board->started_at, now);
}

int64_t board_recovery_ms(const struct board_round *round)
{
    const int64_t parts[] = {round->detect_ms, round->stop_ms,   round->form_ms,
                             round->start_ms,  round->import_ms, round->first_ms};
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i] < 0 && i != 4 && i != 0) /* without an import mark it is in the first step */
            return -1;
        sum += parts[i] > 0 ? parts[i] : 0;
    }
    return sum;
}
