/* board_screen.c - see board_screen.h. */
#include "launcher/board/board_screen.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/board/board_html.h"
#include "proto/base/text.h"

enum { WIDEST = 512, ROUNDS_SHOWN = 4, LINES_SHOWN = 4, WARNINGS_SHOWN = 3 };

struct screen {
    struct buffer *out;
    int columns, left; /* rows that are left */
};

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 127;
}

static void row(struct screen *screen, char mark, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void row(struct screen *screen, char mark, const char *format, ...)
{
    char text[WIDEST];
    va_list args;
    if (screen->left <= 0)
        return;
    screen->left--;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    int length = (int)strlen(text);
    if (length > screen->columns)
        length = screen->columns;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--; /* not in the middle of a character */
    for (int i = 0; i < length; i++)
        if (is_control(text[i]))
            text[i] = '?';
    buffer_append(screen->out, &mark, 1);
    buffer_append(screen->out, text, (size_t)length);
    buffer_text(screen->out, "\n");
}

/* The figures of the first rank that has handed some over: figures of the whole job are the same for all
 * ranks. */
static const struct worker_figures *first_figures(const struct board *board)
{
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++)
            if (board->nodes[i].ranks[j].figures.there)
                return &board->nodes[i].ranks[j].figures;
    return NULL;
}

static void figure_rows(struct screen *screen, const struct board *board)
{
    const struct worker_figures *figures = first_figures(board);
    const struct board_point *point = board->point_count ? &board->points[board->point_count - 1] : NULL;
    char step[24], low_step[24], of[24], loss[24], tokens[24], exposed[24], each[24];
    int64_t low, high;
    if (!board_steps(board, &low, &high))
        return;
    const bool total = figures && figures->has[FIGURE_TOTAL_STEPS];
    row(screen, SCREEN_PLAIN, "step %s%s%s%s%s   loss %s   tokens/s %s   exposed communication %s",
        board_number(step, sizeof step, (double)high), total ? " of " : "",
        total ? board_number(of, sizeof of, figures->value[FIGURE_TOTAL_STEPS]) : "",
        low < high ? "   slowest " : "",
        low < high ? board_number(low_step, sizeof low_step, (double)low) : "",
        board_number(loss, sizeof loss, point ? point->loss : NAN),
        board_number(tokens, sizeof tokens, point ? point->tokens_per_s : NAN),
        board_duration(exposed, sizeof exposed,
                       point && isfinite(point->exposed_ms) ? (int64_t)point->exposed_ms : -1));
    if (figures && figures->has[FIGURE_SLOW_RANK] && figures->value[FIGURE_SLOW_RANK] >= 0)
        row(screen, SCREEN_BAD, "rank %d is waited for, %s a step", (int)figures->value[FIGURE_SLOW_RANK],
            board_duration(each, sizeof each, (int64_t)figures->value[FIGURE_SLOW_MS]));
}

/* Who serves, who may elect another one, and the last change. */
static void server_rows(struct screen *screen, const struct board *board, int64_t now)
{
    char voters[WIDEST] = "", ago[24];
    const struct board_change *last = board->change_count ? &board->changes[board->change_count - 1] : NULL;
    for (int i = 0; i < board->voter_count; i++)
        (void)text_append(voters, sizeof voters, "%s%s", i ? ", " : "", board->voters[i]);
    if (board->voter_count > 1)
        row(screen, SCREEN_DIM, "server %s   voters %s", *board->server ? board->server : "none", voters);
    if (last)
        row(screen, *last->server ? SCREEN_DIM : SCREEN_BAD, "server: %s for %s: %s",
            *last->server ? last->server : "none",
            board_duration(ago, sizeof ago, (board->over ? board->now : now) - last->at), last->reason);
}

static void job_rows(struct screen *screen, const struct board *board, int64_t now)
{
    char up[24];
    const struct board_round *round = board->round_count ? &board->rounds[board->round_count - 1] : NULL;
    const double goodput = board_goodput(board, board->over ? board->now : now);
    row(screen, SCREEN_HEAD, "%s  %s  %s  up %s  muster %s", board->job, board->program,
        board->over ? board->exit_code ? "FAILED" : "SUCCEEDED" : board->state,
        board_duration(up, sizeof up, (board->over ? board->now : now) - board->started_at), board->version);
    if (round)
        row(screen, SCREEN_PLAIN, "round %lld: %d rank%s on %d node%s   restarts %lld of %lld%s%.0f%s",
            (long long)round->number, round->world_size, round->world_size == 1 ? "" : "s", round->nodes,
            round->nodes == 1 ? "" : "s", (long long)round->restarts, (long long)board->max_restarts,
            isfinite(goodput) ? "   goodput " : "", isfinite(goodput) ? 100 * goodput : 0.0,
            isfinite(goodput) ? "%" : "");
    const struct board_block total = board_total(board, now);
    if (total.nodes > BOARD_SINGLE_NODES)
        row(screen, total.silent || total.failed ? SCREEN_BAD : SCREEN_PLAIN,
            "%d nodes report, %d of them silent; of %d ranks %d run, %d failed; below are the notable nodes",
            total.nodes, total.silent, total.ranks, total.running, total.failed);
    figure_rows(screen, board);
    server_rows(screen, board, now);
    if (*board->waiting)
        row(screen, SCREEN_DIM, "waiting: %s", board->waiting);
    if (board->over && *board->verdict)
        row(screen, board->exit_code ? SCREEN_BAD : SCREEN_GOOD, "%s", board->verdict);
    if (!board->serves && !board->over)
        row(screen, SCREEN_DIM, "this node alone; %s serves the job",
            *board->server ? board->server : "another");
}

static void round_rows(struct screen *screen, const struct board *board)
{
    char parts[BOARD_PARTS][24], whole[24];
    const int first = board->round_count > ROUNDS_SHOWN ? board->round_count - ROUNDS_SHOWN : 0;
    for (int i = first; i < board->round_count; i++) {
        const struct board_round *round = &board->rounds[i];
        if (i > 0 && round->stop_ms >= 0) {
            for (int j = 0; j < BOARD_PARTS; j++)
                (void)board_duration(parts[j], sizeof parts[j], board_part(round, j));
            row(screen, SCREEN_GOOD,
                "round %lld began after %s: detect %s, stop %s, form %s, start %s, import %s, "
                "first step %s",
                (long long)round->number, board_duration(whole, sizeof whole, board_recovery_ms(round)),
                parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]);
        }
        if (*round->cause)
            row(screen, round->planned ? SCREEN_DIM : SCREEN_BAD, "round %lld ended: %s",
                (long long)round->number, round->cause);
    }
}

static void rank_row(struct screen *screen, const struct board_node *node, const struct board_rank *rank)
{
    char step[24] = "-", loss[24], took[24], exposed[24], memory[24] = "-", state[32];
    const struct worker_figures *figures = &rank->figures;
    const bool failed = !strcmp(rank->state, "failed");
    const bool has_step = figures->has[FIGURE_STEP_MS], has_exposed = figures->has[FIGURE_EXPOSED_MS];
    if (failed)
        (void)snprintf(state, sizeof state, rank->signal ? "failed, signal %d" : "failed, exit %d",
                       rank->signal ? rank->signal : rank->exit_code);
    else
        board_text(state, sizeof state, rank->state);
    if (rank->step >= 0)
        (void)board_number(step, sizeof step, (double)rank->step);
    if (rank->memory >= 0)
        (void)snprintf(memory, sizeof memory, "%.0f MB", (double)rank->memory / (1 << 20));
    row(screen, failed ? SCREEN_BAD : SCREEN_PLAIN, "%6d  %-16.16s %-18s %9s %10s %10s %10s %9s", rank->rank,
        node->host, state, step,
        board_number(loss, sizeof loss, figures->has[FIGURE_LOSS] ? figures->value[FIGURE_LOSS] : NAN),
        board_duration(took, sizeof took, has_step ? (int64_t)figures->value[FIGURE_STEP_MS] : -1),
        board_duration(exposed, sizeof exposed,
                       has_exposed ? (int64_t)figures->value[FIGURE_EXPOSED_MS] : -1),
        memory);
}

static void rank_lines(struct screen *screen, const struct board *board)
{
    const struct board_rank *rank = board_rank_find(board, 0);
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++)
            if (!strcmp(board->nodes[i].ranks[j].state, "failed") && board->nodes[i].ranks[j].lines)
                rank = &board->nodes[i].ranks[j];
    if (!rank || !rank->lines)
        return;
    row(screen, SCREEN_DIM, "last lines of rank %d", rank->rank);
    const char *from = rank->lines + strlen(rank->lines);
    for (int lines = 0; from > rank->lines && lines < LINES_SHOWN; lines++)
        while (from > rank->lines && *--from != '\n')
            ;
    while (*from) {
        from += *from == '\n';
        const size_t length = strcspn(from, "\n");
        row(screen, SCREEN_PLAIN, "  %.*s", (int)length, from);
        from += length;
    }
}

int board_screen(const struct board *board, int64_t now, int columns, int rows, int first_rank,
                 struct buffer *out)
{
    struct screen screen = {out, columns < WIDEST ? columns : WIDEST - 1, rows};
    int count = 0;
    job_rows(&screen, board, now);
    round_rows(&screen, board);
    if (rows > ROUNDS_SHOWN + 2 * LINES_SHOWN + WARNINGS_SHOWN) { /* else the ranks need the room */
        int shown = 0;
        for (int i = 0; i < board->node_count; i++)
            for (int j = board->nodes[i].warning_count - 1; j >= 0 && shown < WARNINGS_SHOWN; j--, shown++)
                row(&screen, SCREEN_DIM, "warning: %s: %s", board->nodes[i].host,
                    board->nodes[i].warnings[j]);
    }
    row(&screen, SCREEN_HEAD, "%6s  %-16s %-18s %9s %10s %10s %10s %9s", "RANK", "NODE", "STATE", "STEP",
        "LOSS", "STEP TIME", "EXPOSED", "MEMORY");
    const int kept = screen.left > 2 * (LINES_SHOWN + 1) ? LINES_SHOWN + 1 : 0;
    screen.left -= kept;
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++)
            if (count++ >= first_rank)
                rank_row(&screen, &board->nodes[i], &board->nodes[i].ranks[j]);
    screen.left += kept;
    rank_lines(&screen, board);
    return count;
}
