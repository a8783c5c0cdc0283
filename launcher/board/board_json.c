/* board_json.c - a board and its notes as JSON; see board_json.h. */
#include "launcher/board/board_json.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

static void text(struct buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "\"%s\":", name);
    buffer_json_string(out, value);
}

static void comma_text(struct buffer *out, const char *name, const char *value)
{
    buffer_text(out, ",");
    text(out, name, value);
}

static void number(struct buffer *out, const char *name, int64_t value)
{
    buffer_printf(out, ",\"%s\":%lld", name, (long long)value);
}

/* Left out where it is not known. */
static void known(struct buffer *out, const char *name, int64_t value)
{
    if (value >= 0)
        number(out, name, value);
}

static void figures_json(const struct worker_figures *figures, struct buffer *out)
{
    const char *before = "";
    buffer_text(out, ",\"figures\":{");
    for (int i = 0; i < FIGURE_COUNT; i++)
        if (figures->has[i] && isfinite(figures->value[i])) {
            buffer_printf(out, "%s\"%s\":%.9g", before, figure_row((enum figure)i)->name, figures->value[i]);
            before = ",";
        }
    for (int i = 0; i < figures->own_count; i++)
        if (isfinite(figures->own[i].value)) {
            buffer_printf(out, "%s\"%s\":%.9g", before, figures->own[i].name, figures->own[i].value);
            before = ",";
        }
    buffer_text(out, "}");
}

/* At most `limit` bytes of its lines, the last ones. */
static void lines_json(const struct board_rank *rank, size_t limit, struct buffer *out)
{
    if (!rank->lines || !limit)
        return;
    const size_t length = strlen(rank->lines);
    const char *from = length > limit ? rank->lines + length - limit : rank->lines;
    if (from > rank->lines && strchr(from, '\n'))
        from = strchr(from, '\n') + 1; /* whole lines, where there are any */
    comma_text(out, "lines", from);
}

static void rank_json(const struct board_rank *rank, size_t lines, struct buffer *out)
{
    buffer_printf(out, "{\"rank\":%d,\"local_rank\":%d,\"pid\":%d", rank->rank, rank->local_rank, rank->pid);
    comma_text(out, "state", rank->state);
    if (!strcmp(rank->state, "failed"))
        buffer_printf(out, ",\"exit_code\":%d,\"signal\":%d", rank->exit_code, rank->signal);
    known(out, "step", rank->step);
    known(out, "beat_ms", rank->beat_ms);
    known(out, "first_step", rank->first_step);
    known(out, "first_beat_ms", rank->first_beat_ms);
    known(out, "memory", rank->memory);
    known(out, "import_ms", rank->import_ms);
    known(out, "first_ms", rank->first_ms);
    known(out, "ended_ms", rank->ended_ms);
    if (rank->slow_seen)
        number(out, "slow_seen", rank->slow_seen);
    if (rank->figures.there)
        figures_json(&rank->figures, out);
    lines_json(rank, lines, out);
    buffer_text(out, "}");
}

static void node_json(const struct board_node *node, int64_t now, size_t lines, struct buffer *out)
{
    buffer_text(out, "{");
    text(out, "host", node->host);
    number(out, "group_rank", node->group_rank);
    number(out, "round", node->round);
    comma_text(out, "state", node->state);
    if (node->heard_at >= 0)
        number(out, "heard_ms", now - node->heard_at);
    known(out, "start_ms", node->start_ms);
    known(out, "stopped_ms", node->stopped_ms);
    if (node->warning_count) {
        buffer_text(out, ",\"warnings\":[");
        for (int i = 0; i < node->warning_count; i++) {
            buffer_text(out, i ? "," : "");
            buffer_json_string(out, node->warnings[i]);
        }
        buffer_text(out, "]");
    }
    buffer_text(out, ",\"ranks\":[");
    for (int i = 0; i < node->rank_count; i++) {
        buffer_text(out, i ? ",\n" : "");
        rank_json(&node->ranks[i], lines, out);
    }
    buffer_text(out, "]}");
}

/* [time, step, loss, tokens/s, step ms, exposed ms]; the time as it is, or as an age. */
static void points_json(const struct board_point *points, int count, int64_t age_of, struct buffer *out)
{
    buffer_text(out, "\"points\":[");
    for (int i = 0; i < count; i++) {
        const struct board_point *p = &points[i];
        const double values[] = {p->loss, p->tokens_per_s, p->step_ms, p->exposed_ms};
        buffer_printf(out, "%s[%lld,%lld", i ? "," : "", (long long)(age_of >= 0 ? age_of - p->at : p->at),
                      (long long)p->step);
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            buffer_text(out, ",");
            if (isfinite(values[j]))
                buffer_printf(out, "%.7g", values[j]);
            else
                buffer_text(out, "null");
        }
        buffer_text(out, "]");
    }
    buffer_text(out, "]");
}

/* The time, or its age where age_of is one. Left out where it is not known. */
static void moment(struct buffer *out, const char *name, int64_t at, int64_t age_of)
{
    if (at >= 0)
        number(out, name, age_of < 0 ? at : age_of > at ? age_of - at : 0);
}

static void round_json(const struct board_round *round, int64_t age_of, struct buffer *out)
{
    buffer_printf(out, "{\"round\":%lld", (long long)round->number);
    if (round->epoch)
        buffer_printf(out, ",\"epoch\":\"%016llx\"", (unsigned long long)round->epoch);
    moment(out, "formed_at", round->formed_at, age_of);
    number(out, "nodes", round->nodes);
    number(out, "world_size", round->world_size);
    number(out, "restarts", round->restarts);
    moment(out, "stop_at", round->stop_at, age_of);
    moment(out, "failed_at", round->failed_at, age_of);
    known(out, "stopped_ms", round->stopped_ms);
    known(out, "detect_ms", round->detect_ms);
    known(out, "stop_ms", round->stop_ms);
    known(out, "form_ms", round->form_ms);
    known(out, "start_ms", round->start_ms);
    known(out, "import_ms", round->import_ms);
    known(out, "first_ms", round->first_ms);
    known(out, "first_step", round->first_step);
    known(out, "last_step", round->last_step);
    moment(out, "first_step_at", round->first_step_at, age_of);
    moment(out, "last_step_at", round->last_step_at, age_of);
    buffer_printf(out, ",\"planned\":%s", round->planned ? "true" : "false");
    comma_text(out, "cause", round->cause);
    buffer_text(out, "}");
}

static void block_json(const struct board_block *block, struct buffer *out)
{
    buffer_printf(out, "{\"first\":%d,\"last\":%d,\"nodes\":%d,\"silent\":%d,\"ranks\":%d,\"running\":%d",
                  block->first, block->last, block->nodes, block->silent, block->ranks, block->running);
    buffer_printf(out, ",\"failed\":%d,\"exited\":%d", block->failed, block->exited);
    known(out, "low_step", block->low_step);
    known(out, "high_step", block->high_step);
    if (block->memory)
        number(out, "memory", block->memory);
    buffer_text(out, "}");
}

/* Whether there are any: then only notable nodes are told one by one. */
static bool blocks_json(const struct board *board, int64_t now, struct buffer *out)
{
    struct board_block blocks[BOARD_BLOCKS];
    const int count = board_blocks(board, now, blocks);
    if (!count)
        return false;
    const struct board_block total = board_total(board, now);
    buffer_text(out, "\"total\":");
    block_json(&total, out);
    buffer_text(out, ",\n\"blocks\":[");
    for (int i = 0; i < count; i++) {
        buffer_text(out, i ? ",\n" : "");
        block_json(&blocks[i], out);
    }
    buffer_text(out, "],\n");
    return true;
}

static bool is_notable(const struct board *board, const struct board_node *node, int64_t now)
{
    return node->warning_count || board_block_of(node).failed || board_is_silent(board, node, now);
}

static void nodes_json(const struct board *board, int64_t now, size_t lines, bool notable, struct buffer *out)
{
    enum { FIRST = 16 };
    int shown = 0;
    buffer_text(out, "\"nodes\":[");
    for (int i = 0; i < board->node_count; i++) {
        if (notable && (shown == BOARD_NOTABLE || (i >= FIRST && !is_notable(board, &board->nodes[i], now))))
            continue;
        buffer_text(out, shown++ ? ",\n" : "");
        node_json(&board->nodes[i], now, lines, out);
    }
    buffer_text(out, "]");
}

static void serving_json(const struct board *board, struct buffer *out)
{
    comma_text(out, "server", board->server);
    buffer_text(out, ",\"voters\":[");
    for (int i = 0; i < board->voter_count; i++) {
        buffer_text(out, i ? "," : "");
        buffer_json_string(out, board->voters[i]);
    }
    buffer_text(out, "],\"changes\":[");
    for (int i = 0; i < board->change_count; i++) {
        const struct board_change *change = &board->changes[i];
        buffer_printf(out, "%s{\"at\":%lld", i ? ",\n" : "", (long long)change->at);
        comma_text(out, "server", change->server);
        comma_text(out, "reason", change->reason);
        buffer_text(out, "}");
    }
    buffer_text(out, "]");
}

static void job_json(const struct board *board, int64_t now, struct buffer *out)
{
    const double goodput = board_goodput(board, board->over ? board->now : now);
    const struct board_rank *slowest = board_slowest(board);
    text(out, "version", board->version);
    comma_text(out, "job", board->job);
    comma_text(out, "program", board->program);
    comma_text(out, "state", board->state);
    comma_text(out, "waiting", board->waiting);
    serving_json(board, out);
    buffer_printf(out, ",\"serves\":%s,\"over\":%s", board->serves ? "true" : "false",
                  board->over ? "true" : "false");
    if (board->over)
        number(out, "exit_code", board->exit_code);
    comma_text(out, "verdict", board->verdict);
    number(out, "now", now);
    number(out, "changed_at", board->now);
    number(out, "started_at", board->started_at);
    number(out, "min_nodes", board->min_nodes);
    number(out, "max_nodes", board->max_nodes);
    number(out, "max_restarts", board->max_restarts);
    number(out, "left_out", board->left_out);
    number(out, "sample_ms", board_sample_ms(board->max_nodes));
    number(out, "rounds_left_out", board->rounds_left_out);
    if (slowest)
        number(out, "slowest_rank", slowest->rank);
    if (isfinite(goodput))
        buffer_printf(out, ",\"goodput\":%.4f", goodput);
}

void board_json(const struct board *board, int64_t now, bool lines, struct buffer *out)
{
    const size_t kept = lines && board->ranks_total <= BOARD_JSON_LINES_RANKS ? BOARD_LINES_BYTES : 0;
    buffer_text(out, "{");
    job_json(board, now, out);
    buffer_text(out, ",\n\"rounds\":[");
    for (int i = 0; i < board->round_count; i++) {
        buffer_text(out, i ? ",\n" : "");
        round_json(&board->rounds[i], -1, out);
    }
    buffer_text(out, "],\n");
    points_json(board->points, board->point_count, -1, out);
    buffer_text(out, ",\n");
    const bool notable = blocks_json(board, now, out);
    nodes_json(board, now, kept, notable, out);
    buffer_text(out, "}\n");
}

void board_lines_json(const struct board *board, int rank, struct buffer *out)
{
    const struct board_rank *found = board_rank_find(board, rank);
    buffer_printf(out, "{\"rank\":%d", rank);
    if (found)
        lines_json(found, BOARD_LINES_BYTES, out);
    buffer_text(out, "}\n");
}

static void note_json(const struct board_note *note, int64_t now, size_t lines, struct buffer *out)
{
    buffer_clear(out);
    buffer_text(out, "{\"note\":1,\"node\":");
    node_json(note->node, now, lines, out);
    buffer_text(out, ",");
    points_json(note->points, note->point_count, now, out);
    if (note->round_count) {
        moment(out, "started_at", note->started_at, now);
        buffer_text(out, ",\"rounds\":[");
        for (int i = 0; i < note->round_count; i++) {
            buffer_text(out, i ? "," : "");
            round_json(&note->rounds[i], now, out);
        }
        buffer_text(out, "]");
    }
    buffer_text(out, "}");
}

int board_note_write(const struct board_note *whole, int64_t now, struct buffer *out,
                     struct muster_error *err)
{
    /* half as many lines and points, until it fits */
    struct board_note note = *whole;
    size_t lines = BOARD_LINES_BYTES;
    do {
        note_json(&note, now, lines, out);
        if (out->failed)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a note");
        if (out->length <= BOARD_NOTE_LIMIT)
            return 0;
        if (!lines) {
            note.points += note.point_count - note.point_count / 2; /* the latest */
            note.point_count /= 2;
        }
        lines /= 2;
    } while (note.point_count || lines);
    note_json(&note, now, 0, out);
    return out->length <= BOARD_NOTE_LIMIT
               ? 0
               : error_set(err, MUSTER_E_LIMIT, "a note of %zu bytes about %d ranks; %d is the limit",
                           out->length, note.node->rank_count, BOARD_NOTE_LIMIT);
}

/* --- the file --- */

struct board_file {
    char *path;
    struct buffer text;
    struct board *found; /* the board that was read */
    struct muster_error err;
};

char *board_file_path(const char *directory, const char *job)
{
    return mem_printf("%s/%s" BOARD_FILE_SUFFIX, directory, job);
}

static void file_free(void *payload)
{
    struct board_file *file = payload;
    mem_free(file->path);
    buffer_free(&file->text);
    board_free(file->found);
    mem_free(file);
}

static void write_board(void *payload)
{
    struct board_file *file = payload;
    (void)io_write_file_atomic(file->path, file->text.data, file->text.length, 0644,
                               &file->err); /* err tells */
}

struct background_job *board_file_write(const char *directory, const struct board *board, int64_t now,
                                        struct board_file **file, struct muster_error *err)
{
    struct board_file *made = *file = mem_calloc(1, sizeof *made);
    if (made) {
        made->path = board_file_path(directory, board->job);
        board_json(board, now, true, &made->text);
    }
    if (!made || !made->path || made->text.failed) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the board's file");
        if (made)
            file_free(made);
        return NULL;
    }
    return background_job_start("saving the job's board", write_board, made, file_free, err);
}

static void load_board(void *payload)
{
    struct board_file *file = payload;
    if (access(file->path, F_OK) == 0 || errno != ENOENT)
        file->found = board_file_read(file->path, &file->err);
}

struct background_job *board_file_load(const char *directory, const char *job, struct board_file **file,
                                       struct muster_error *err)
{
    struct board_file *made = *file = mem_calloc(1, sizeof *made);
    if (made)
        made->path = board_file_path(directory, job);
    if (!made || !made->path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the board's file");
        mem_free(made);
        return NULL;
    }
    return background_job_start("reading the job's board", load_board, made, file_free, err);
}

struct board *board_file_take(struct board_file *file)
{
    return take_pointer(&file->found);
}

const struct muster_error *board_file_error(const struct board_file *file)
{
    return &file->err;
}

struct board *board_file_read(const char *path, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, BOARD_JSON_LIMIT, &text, err) < 0)
        return NULL;
    return board_read(path, text.data ? text.data : "", text.length, clock_wall_ns() / NS_PER_MS, err);
}
