/* board_read.c - reads what board_json.c has written, here or on another machine; see board_json.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "launcher/board/board_json.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/tree/tree.h"

/* Numbers beyond it are not ours: a time of the year 5000. */
static const int64_t number_limit = INT64_C(100000000000000);

/* A whole number from `least` on; `otherwise` where it is absent or none. */
static int64_t number(const struct tree_node *map, const char *name, int64_t least, int64_t otherwise)
{
    const struct tree_node *node = tree_get(map, name);
    return node && node->kind == TREE_INT && node->integer >= least && node->integer <= number_limit
               ? node->integer
               : otherwise;
}

static int small(const struct tree_node *map, const char *name, int least, int otherwise)
{
    const int64_t value = number(map, name, least, otherwise);
    return value <= INT32_MAX ? (int)value : otherwise;
}

static int64_t known(const struct tree_node *map, const char *name)
{
    return number(map, name, 0, -1);
}

static double real(const struct tree_node *node)
{
    if (node && node->kind == TREE_INT)
        return (double)node->integer;
    return node && node->kind == TREE_FLOAT && isfinite(node->real) ? node->real : NAN;
}

static bool truth(const struct tree_node *map, const char *name)
{
    const struct tree_node *node = tree_get(map, name);
    return node && node->kind == TREE_BOOL && node->boolean;
}

/* Cut where it is too long; control characters, which a terminal obeys, become '?'. */
static void text(const struct tree_node *map, const char *name, char *out, size_t size)
{
    const char *value = tree_text(tree_get(map, name));
    (void)snprintf(out, size, "%s", value ? value : "");
    for (char *c = out; *c; c++)
        if (((unsigned char)*c < ' ' && *c != '\n' && *c != '\t') || *c == 127)
            *c = '?';
}

static size_t list(const struct tree_node *map, const char *name, const struct tree_node *const **items)
{
    const struct tree_node *node = tree_get(map, name);
    *items = node && node->kind == TREE_LIST ? node->items : NULL;
    return *items ? node->count : 0;
}

static int bad(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_INVALID, "not a board of muster: %s", what);
}

/* --- a node --- */

static void take_figures(const struct tree_node *map, struct worker_figures *out)
{
    for (size_t i = 0; map && map->kind == TREE_MAP && i < map->count; i++) {
        const struct tree_entry *entry = &map->entries[i];
        const double value = real(entry->value);
        if (isfinite(value))
            figures_set(out, entry->key, strlen(entry->key), value);
    }
}

static int take_rank(const struct tree_node *map, struct board_rank *rank, struct muster_error *err)
{
    char lines[BOARD_LINES_BYTES + 1];
    rank->rank = small(map, "rank", 0, -1);
    rank->local_rank = small(map, "local_rank", 0, -1);
    if (rank->rank < 0 || rank->local_rank < 0)
        return bad(err, "a rank without its number");
    rank->pid = small(map, "pid", 0, 0);
    text(map, "state", rank->state, sizeof rank->state);
    rank->exit_code = small(map, "exit_code", -1, 0);
    rank->signal = small(map, "signal", 0, 0);
    rank->step = known(map, "step");
    rank->beat_ms = known(map, "beat_ms");
    rank->first_step = known(map, "first_step");
    rank->first_beat_ms = known(map, "first_beat_ms");
    rank->memory = known(map, "memory");
    rank->import_ms = known(map, "import_ms");
    rank->first_ms = known(map, "first_ms");
    rank->ended_ms = known(map, "ended_ms");
    rank->slow_seen = number(map, "slow_seen", 0, 0);
    take_figures(tree_get(map, "figures"), &rank->figures);
    if (!tree_text(tree_get(map, "lines")))
        return 0;
    text(map, "lines", lines, sizeof lines);
    rank->lines = mem_strdup(lines);
    return rank->lines ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a rank's lines");
}

static void take_warnings(const struct tree_node *map, struct board_node *node)
{
    const struct tree_node *const *items;
    const size_t count = list(map, "warnings", &items);
    for (size_t i = 0; i < count && node->warning_count < BOARD_WARNINGS; i++)
        if (tree_text(items[i]))
            (void)snprintf(node->warnings[node->warning_count++], BOARD_TEXT, "%s", tree_text(items[i]));
}

static int take_node(const struct tree_node *map, int64_t now, struct board_node *node,
                     struct muster_error *err)
{
    const struct tree_node *const *ranks;
    const size_t count = list(map, "ranks", &ranks);
    if (!map || map->kind != TREE_MAP || count > BOARD_NODE_RANKS)
        return bad(err, "a node that is none, or has too many ranks");
    if (board_node_init(node, (int)count, err) < 0)
        return -1;
    text(map, "host", node->host, sizeof node->host);
    text(map, "state", node->state, sizeof node->state);
    node->group_rank = small(map, "group_rank", -1, -1);
    node->round = number(map, "round", -1, -1);
    node->heard_at = now - number(map, "heard_ms", 0, 0);
    node->start_ms = known(map, "start_ms");
    node->stopped_ms = known(map, "stopped_ms");
    take_warnings(map, node);
    for (size_t i = 0; i < count; i++)
        if (take_rank(ranks[i], &node->ranks[i], err) < 0)
            return -1;
    return 0;
}

/* --- points --- */

/* age_of: their times are ages at that time; -1: times. Values that are no times are left out. */
static int take_points(const struct tree_node *map, int64_t age_of, struct board_point *points)
{
    enum { FIELDS = 6 };
    const struct tree_node *const *items;
    const size_t count = list(map, "points", &items);
    int taken = 0;
    for (size_t i = 0; i < count && taken < BOARD_POINTS; i++) {
        const struct tree_node *item = items[i];
        if (item->kind != TREE_LIST || item->count != FIELDS)
            continue;
        const double at = real(item->items[0]), step = real(item->items[1]);
        if (!(at >= 0 && at < (double)number_limit && step >= 0 && step < (double)number_limit))
            continue;
        points[taken++] = (struct board_point){.at = age_of >= 0 ? age_of - (int64_t)at : (int64_t)at,
                                               .step = (int64_t)step,
                                               .loss = real(item->items[2]),
                                               .tokens_per_s = real(item->items[3]),
                                               .step_ms = real(item->items[4]),
                                               .exposed_ms = real(item->items[5])};
    }
    return taken;
}

/* --- rounds --- */

/* age_of: its times are ages at that time; -1: times. */
static int64_t moment(const struct tree_node *map, const char *name, int64_t age_of)
{
    const int64_t value = known(map, name);
    return value < 0 || age_of < 0 ? value : age_of > value ? age_of - value : 0;
}

static uint64_t epoch_of(const struct tree_node *map)
{
    const char *value = tree_text(tree_get(map, "epoch"));
    unsigned long long epoch = 0;
    return value && sscanf(value, "%16llx", &epoch) == 1 ? epoch : 0;
}

static void take_round(const struct tree_node *map, int64_t age_of, struct board_round *round)
{
    *round = (struct board_round){.epoch = epoch_of(map),
                                  .number = number(map, "round", 0, 0),
                                  .formed_at = moment(map, "formed_at", age_of),
                                  .nodes = small(map, "nodes", 0, 0),
                                  .world_size = small(map, "world_size", 0, 0),
                                  .restarts = number(map, "restarts", 0, 0),
                                  .stop_at = moment(map, "stop_at", age_of),
                                  .failed_at = moment(map, "failed_at", age_of),
                                  .stopped_ms = known(map, "stopped_ms"),
                                  .detect_ms = known(map, "detect_ms"),
                                  .stop_ms = known(map, "stop_ms"),
                                  .form_ms = known(map, "form_ms"),
                                  .start_ms = known(map, "start_ms"),
                                  .import_ms = known(map, "import_ms"),
                                  .first_ms = known(map, "first_ms"),
                                  .first_step = known(map, "first_step"),
                                  .last_step = known(map, "last_step"),
                                  .first_step_at = moment(map, "first_step_at", age_of),
                                  .last_step_at = moment(map, "last_step_at", age_of),
                                  .planned = truth(map, "planned")};
    if (round->formed_at < 0)
        round->formed_at = 0;
    text(map, "cause", round->cause, sizeof round->cause);
}

static int take_rounds(const struct tree_node *map, int64_t age_of, struct board_round *rounds, int limit)
{
    const struct tree_node *const *items;
    const size_t count = list(map, "rounds", &items);
    int taken = 0;
    for (size_t i = 0; i < count && taken < limit; i++)
        take_round(items[i], age_of, &rounds[taken++]);
    return taken;
}

int board_note_read(const char *data, size_t length, int64_t now, struct board_note_read *out,
                    struct muster_error *err)
{
    struct tree tree = {0};
    out->node = (struct board_node){0};
    out->point_count = out->round_count = 0;
    if (length > BOARD_NOTE_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "a note of %zu bytes; %d is the limit", length,
                         BOARD_NOTE_LIMIT);
    if (tree_parse("note", data, length, &tree, err) < 0)
        return -1;
    const struct tree_node *root = tree.document_count == 1 ? tree.documents[0] : NULL;
    int failed = number(root, "note", 1, 0) == 1 ? take_node(tree_get(root, "node"), now, &out->node, err)
                                                 : bad(err, "no note of version 1");
    if (!failed) {
        out->point_count = take_points(root, now, out->points);
        out->round_count = take_rounds(root, now, out->rounds, BOARD_NOTE_ROUNDS);
        out->started_at = moment(root, "started_at", now);
        out->started_at = out->started_at < 0 ? now : out->started_at;
    }
    tree_free(&tree);
    return failed;
}

/* --- a board --- */

static void take_serving(const struct tree_node *map, struct board *board)
{
    const struct tree_node *const *items;
    size_t count = list(map, "voters", &items);
    text(map, "server", board->server, sizeof board->server);
    for (size_t i = 0; i < count && board->voter_count < BOARD_VOTERS; i++)
        if (tree_text(items[i]))
            board_text(board->voters[board->voter_count++], BOARD_NAME, tree_text(items[i]));
    count = list(map, "changes", &items);
    for (size_t i = 0; i < count && board->change_count < BOARD_CHANGES; i++) {
        struct board_change *change = &board->changes[board->change_count++];
        change->at = number(items[i], "at", 0, 0);
        text(items[i], "server", change->server, sizeof change->server);
        text(items[i], "reason", change->reason, sizeof change->reason);
    }
}

static void take_job(const struct tree_node *map, struct board *board)
{
    text(map, "version", board->version, sizeof board->version);
    text(map, "job", board->job, sizeof board->job);
    text(map, "program", board->program, sizeof board->program);
    text(map, "state", board->state, sizeof board->state);
    text(map, "waiting", board->waiting, sizeof board->waiting);
    take_serving(map, board);
    text(map, "verdict", board->verdict, sizeof board->verdict);
    board->serves = truth(map, "serves");
    board->over = truth(map, "over");
    board->exit_code = small(map, "exit_code", 0, 0);
    board->now = number(map, "now", 0, 0);
    if (board->over)
        board->now = number(map, "changed_at", 0, board->now);
    board->started_at = number(map, "started_at", 0, 0);
    board->min_nodes = small(map, "min_nodes", 0, 0);
    board->max_nodes = small(map, "max_nodes", 0, 0);
    board->max_restarts = number(map, "max_restarts", 0, 0);
    board->left_out = small(map, "left_out", 0, 0);
    board->rounds_left_out = number(map, "rounds_left_out", 0, 0);
}

static struct board_block block_of(const struct tree_node *map)
{
    return (struct board_block){.first = small(map, "first", 0, 0),
                                .last = small(map, "last", 0, 0),
                                .nodes = small(map, "nodes", 0, 0),
                                .silent = small(map, "silent", 0, 0),
                                .ranks = small(map, "ranks", 0, 0),
                                .running = small(map, "running", 0, 0),
                                .failed = small(map, "failed", 0, 0),
                                .exited = small(map, "exited", 0, 0),
                                .low_step = known(map, "low_step"),
                                .high_step = known(map, "high_step"),
                                .memory = number(map, "memory", 0, 0)};
}

static void take_blocks(const struct tree_node *map, struct board *board)
{
    const struct tree_node *const *items;
    const size_t count = list(map, "blocks", &items);
    if (count)
        board->total = block_of(tree_get(map, "total"));
    for (size_t i = 0; i < count && i < BOARD_BLOCKS; i++)
        board->blocks[board->block_count++] = block_of(items[i]);
}

static int take_nodes(const struct tree_node *map, struct board *board, struct muster_error *err)
{
    const struct tree_node *const *items;
    const size_t count = list(map, "nodes", &items);
    if (count > BOARD_NODES)
        return bad(err, "too many nodes");
    board->nodes = mem_calloc(count + 1, sizeof *board->nodes);
    if (!board->nodes)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu nodes", count);
    for (size_t i = 0; i < count; i++) {
        struct board_node *node = &board->nodes[board->node_count++];
        if (take_node(items[i], board->now, node, err) < 0)
            return -1;
        node->member = (int)i;
        board->ranks_total += node->rank_count;
        if (board->ranks_total > BOARD_RANKS + BOARD_FAILED_RANKS)
            return bad(err, "too many ranks");
    }
    return 0;
}

static int take_board(const struct tree_node *map, struct board *board, struct muster_error *err)
{
    if (!map || map->kind != TREE_MAP || !tree_get(map, "nodes") || !tree_get(map, "rounds"))
        return bad(err, "it has no nodes or no rounds");
    take_job(map, board);
    board->round_count = take_rounds(map, -1, board->rounds, BOARD_ROUNDS);
    board->point_count = take_points(map, -1, board->points);
    take_blocks(map, board);
    return take_nodes(map, board, err);
}

struct board *board_read(const char *name, const char *data, size_t length, int64_t now,
                         struct muster_error *err)
{
    struct tree tree = {0};
    if (length > BOARD_JSON_LIMIT) {
        (void)error_set(err, MUSTER_E_LIMIT, "%s has %zu bytes; %d is the limit", name, length,
                        BOARD_JSON_LIMIT);
        return NULL;
    }
    struct board *board = board_create(now);
    if (!board) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a board");
        return NULL;
    }
    int failed = tree_parse(name, data, length, &tree, err);
    if (!failed) {
        failed = take_board(tree.document_count == 1 ? tree.documents[0] : NULL, board, err);
        tree_free(&tree);
    }
    if (!failed)
        return board;
    board_free(board);
    return NULL;
}
