/* board_report.c - see board_report.h. */
#include "launcher/board/board_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "launcher/board/board_html.h"

/* Where each part of the file stops to grow; the head and the end have the rest. */
enum {
    RANKS_END = 150 * 1000,
    LINES_END = 185 * 1000,
    LINES_WORST = 6 * BOARD_LINES_BYTES,
    FAILED_SHOWN = 8
};

static void cell(struct buffer *out, const char *look, const char *text)
{
    buffer_printf(out, "<td%s>", look);
    board_html_text(out, text);
    buffer_text(out, "</td>");
}

static void tile(struct buffer *out, const char *name, const char *value)
{
    buffer_printf(out, "<div class=\"tile\"><span>%s</span><strong>", name);
    board_html_text(out, value);
    buffer_text(out, "</strong></div>");
}

static int64_t end_of(const struct board *board)
{
    return board->now > board->started_at ? board->now : board->started_at;
}

/* --- the head --- */

static void head(struct buffer *out, const struct board *board, const char *style, size_t length)
{
    char begun[40] = "", lasted[24];
    const time_t seconds = (time_t)(board->started_at / 1000);
    struct tm utc;
    if (gmtime_r(&seconds, &utc))
        (void)strftime(begun, sizeof begun, "%Y-%m-%d %H:%M:%S UTC", &utc);
    buffer_text(out,
                "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                "'unsafe-inline'; img-src data:\"><meta name=\"viewport\" "
                "content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light "
                "dark\"><title>");
    board_html_text(out, board->job);
    buffer_text(out, " - muster report</title><style>");
    buffer_append(out, style, length);
    buffer_text(out, "</style></head><body>\n<h1>");
    board_html_text(out, board->job);
    const bool failed = board->over && board->exit_code;
    buffer_printf(out, " <span class=\"pill %s\">", failed ? "bad" : board->over ? "good" : "warn");
    if (!board->over)
        buffer_text(out, "running when this was written");
    else if (failed)
        buffer_printf(out, "failed, exit code %d", board->exit_code);
    else
        buffer_text(out, "succeeded");
    buffer_text(out, "</span></h1>\n<p class=\"dim\">");
    board_html_text(out, board->program);
    buffer_printf(out, ", begun %s, lasted %s, muster ", begun,
                  board_duration(lasted, sizeof lasted, end_of(board) - board->started_at));
    board_html_text(out, board->version);
    buffer_text(out, "</p>\n");
    if (*board->verdict) {
        buffer_printf(out, "<p class=\"banner%s\">", failed ? " bad" : "");
        board_html_text(out, board->verdict);
        buffer_text(out, "</p>\n");
    }
}

static void tiles(struct buffer *out, const struct board *board)
{
    const struct board_round *last = board->round_count ? &board->rounds[board->round_count - 1] : NULL;
    const struct board_point *point = board->point_count ? &board->points[board->point_count - 1] : NULL;
    const double goodput = board_goodput(board, end_of(board));
    const struct board_rank *slowest = board_slowest(board);
    int64_t low, high;
    char text[64];
    buffer_text(out, "<div class=\"tiles\">");
    if (isfinite(goodput)) {
        (void)snprintf(text, sizeof text, "%.1f%%", 100 * goodput);
        tile(out, "goodput", text);
    }
    (void)snprintf(text, sizeof text, "%lld of %lld", last ? (long long)last->restarts : 0LL,
                   (long long)board->max_restarts);
    tile(out, "restarts", text);
    if (last) {
        (void)snprintf(text, sizeof text, "%d on %d node%s", last->world_size, last->nodes,
                       last->nodes == 1 ? "" : "s");
        tile(out, "ranks", text);
    }
    if (board_steps(board, &low, &high))
        tile(out, "last step", board_number(text, sizeof text, (double)high));
    if (point && isfinite(point->loss))
        tile(out, "last loss", board_number(text, sizeof text, point->loss));
    if (point && isfinite(point->tokens_per_s))
        tile(out, "last tokens/s", board_number(text, sizeof text, point->tokens_per_s));
    (void)snprintf(text, sizeof text, slowest ? "rank %d" : "none", slowest ? slowest->rank : 0);
    tile(out, "slowest rank", text);
    buffer_text(out, "</div>\n");
}

/* --- rounds --- */

static void recovery_rows(struct buffer *out, const struct board_round *round)
{
    char text[24];
    buffer_text(out, "<tr><td>into round ");
    buffer_printf(out, "%lld</td>", (long long)round->number);
    for (int i = 0; i < BOARD_PARTS; i++) {
        buffer_printf(out, "<td class=\"n\"><i class=\"k%d\"></i>", i);
        buffer_printf(out, "%s</td>", board_duration(text, sizeof text, board_part(round, i)));
    }
    buffer_printf(out, "<td class=\"n\"><b>%s</b></td></tr><tr><td class=\"bar\" colspan=\"%d\">",
                  board_duration(text, sizeof text, board_recovery_ms(round)), BOARD_PARTS + 2);
    board_svg_recovery(out, round);
    buffer_text(out, "</td></tr>\n");
}

static void recoveries(struct buffer *out, const struct board *board)
{
    if (board->round_count < 2)
        return;
    buffer_text(out, "<section><h2>Recoveries</h2><div class=\"scroll\"><table><tr><th></th>");
    for (int i = 0; i < BOARD_PARTS; i++)
        buffer_printf(out, "<th class=\"n\">%s</th>", board_part_names[i]);
    buffer_text(out, "<th class=\"n\">in all</th></tr>\n");
    for (int i = 1; i < board->round_count; i++)
        recovery_rows(out, &board->rounds[i]);
    buffer_text(out, "</table></div></section>\n");
}

static void round_row(struct buffer *out, const struct board *board, const struct board_round *round)
{
    char text[48];
    const int64_t end = round->stop_at >= 0 ? round->stop_at : end_of(board);
    buffer_printf(out, "<tr><td>%lld</td><td class=\"n\">%s</td>", (long long)round->number,
                  board_duration(text, sizeof text, round->formed_at - board->started_at));
    buffer_printf(out, "<td class=\"n\">%s</td><td class=\"n\">%d</td><td class=\"n\">",
                  board_duration(text, sizeof text, end - round->formed_at), round->world_size);
    if (round->first_step >= 0)
        buffer_printf(out, "%lld to %lld", (long long)round->first_step, (long long)round->last_step);
    buffer_text(out, "</td></tr>\n");
    if (!*round->cause)
        return;
    buffer_text(out, "<tr>"); /* a line of its own, also where the table is wider than the screen */
    cell(out, round->planned ? " class=\"wrap\" colspan=\"5\"" : " class=\"wrap cause\" colspan=\"5\"",
         round->cause);
    buffer_text(out, "</tr>\n");
}

static void rounds(struct buffer *out, const struct board *board)
{
    buffer_text(out, "<section><h2>Rounds</h2>");
    board_svg_timeline(out, board, end_of(board));
    buffer_text(out, "<p class=\"key\"><i class=\"steps\"></i>steps <i class=\"ran\"></i>no steps <i "
                     "class=\"end\"></i>a failure</p>"
                     "<div class=\"scroll\"><table><tr><th>round</th><th class=\"n\">after</th><th "
                     "class=\"n\">lasted</th><th class=\"n\">ranks</th><th class=\"n\">steps</th></tr>\n");
    for (int i = 0; i < board->round_count; i++)
        round_row(out, board, &board->rounds[i]);
    buffer_text(out, "</table></div>");
    if (board->rounds_left_out)
        buffer_printf(out, "<p class=\"dim\">%lld rounds after the first are left out.</p>",
                      (long long)board->rounds_left_out);
    buffer_text(out, "</section>\n");
}

/* Only of a job that another node can serve. */
static void servers(struct buffer *out, const struct board *board)
{
    char text[24];
    if (board->voter_count < 2 && !board->change_count)
        return;
    buffer_text(out, "<section><h2>Serving node</h2><p>");
    board_html_text(out, *board->server ? board->server : "none");
    for (int i = 0; i < board->voter_count; i++) {
        buffer_text(out, i ? ", " : "; voters ");
        board_html_text(out, board->voters[i]);
    }
    buffer_text(out, "</p>\n");
    if (board->change_count)
        buffer_text(out, "<div class=\"scroll\"><table><tr><th class=\"n\">after</th><th>server</th>"
                         "<th>reason</th></tr>\n");
    for (int i = 0; i < board->change_count; i++) {
        const struct board_change *change = &board->changes[i];
        buffer_printf(out, "<tr><td class=\"n\">%s</td>",
                      board_duration(text, sizeof text, change->at - board->started_at));
        cell(out, "", *change->server ? change->server : "none");
        cell(out, " class=\"wrap\"", change->reason);
        buffer_text(out, "</tr>\n");
    }
    buffer_text(out, board->change_count ? "</table></div></section>\n" : "</section>\n");
}

static double loss_of(const struct board_point *point)
{
    return point->loss;
}

static double tokens_of(const struct board_point *point)
{
    return point->tokens_per_s;
}

/* --- ranks --- */

static void rank_row(struct buffer *out, const struct board_node *node, const struct board_rank *rank)
{
    char text[48], state[64];
    const bool failed = !strcmp(rank->state, "failed");
    if (failed && rank->signal)
        (void)snprintf(state, sizeof state, "failed: signal %d", rank->signal);
    else if (failed)
        (void)snprintf(state, sizeof state, "failed: exit code %d", rank->exit_code);
    else
        (void)snprintf(state, sizeof state, "%s", rank->state);
    buffer_printf(out, "<tr><td>%d</td>", rank->rank);
    cell(out, "", node->host);
    cell(out, failed ? " class=\"cause\"" : "", state);
    buffer_printf(out, "<td class=\"n\">%s</td>",
                  rank->step >= 0 ? board_number(text, sizeof text, (double)rank->step) : "-");
    buffer_printf(out, "<td class=\"n\">%s</td><td class=\"n\">%lld</td></tr>\n",
                  board_duration(text, sizeof text, rank->first_ms), (long long)rank->slow_seen);
}

static void ranks(struct buffer *out, const struct board *board)
{
    int shown = 0;
    buffer_text(
        out, "<section><h2>Ranks at the end</h2><div class=\"scroll\"><table><tr><th>rank</th><th>node</th>"
             "<th>state</th><th class=\"n\">step</th><th class=\"n\">first step after</th>"
             "<th class=\"n\">times waited for</th></tr>\n");
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count && out->length < RANKS_END; j++, shown++)
            rank_row(out, &board->nodes[i], &board->nodes[i].ranks[j]);
    buffer_text(out, "</table></div>");
    const struct board_block total = board_total(board, board->now);
    if (shown < total.ranks)
        buffer_printf(out, "<p class=\"dim\">%d more ranks are left out.</p>", total.ranks - shown);
    buffer_text(out, "</section>\n");
}

static void lines(struct buffer *out, const struct board *board)
{
    int shown = 0;
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++) {
            const struct board_rank *rank = &board->nodes[i].ranks[j];
            const bool wanted = !strcmp(rank->state, "failed") || (!board->exit_code && rank->rank == 0);
            if (!wanted || !rank->lines || shown == FAILED_SHOWN || out->length + LINES_WORST > LINES_END)
                continue;
            buffer_printf(out, "<section><h2>Last lines of rank %d</h2><pre>", rank->rank);
            board_html_text(out, rank->lines);
            buffer_text(out, "</pre></section>\n");
            shown++;
        }
}

static void warnings(struct buffer *out, const struct board *board)
{
    bool any = false;
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].warning_count && out->length + 8 * BOARD_TEXT < LINES_END; j++) {
            buffer_text(out, any ? "<li>" : "<section><h2>Warnings</h2><ul><li>");
            any = true;
            board_html_text(out, board->nodes[i].host);
            buffer_text(out, ": ");
            board_html_text(out, board->nodes[i].warnings[j]);
            buffer_text(out, "</li>");
        }
    if (any)
        buffer_text(out, "</ul></section>\n");
}

void board_report(const struct board *board, const char *style, size_t style_length, struct buffer *out)
{
    head(out, board, style, style_length);
    tiles(out, board);
    rounds(out, board);
    servers(out, board);
    recoveries(out, board);
    buffer_text(out, "<div class=\"curves\">");
    board_svg_curve(out, board, "Loss", loss_of);
    board_svg_curve(out, board, "Tokens/s", tokens_of);
    buffer_text(out, "</div>\n");
    ranks(out, board);
    lines(out, board);
    warnings(out, board);
    buffer_text(out, "</body></html>\n");
}
