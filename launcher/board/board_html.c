/* board_html.c - see board_html.h. */
#include "launcher/board/board_html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 1000, ROW = 16, CURVE_HIGH = 130 };

const char *const board_part_names[BOARD_PARTS] = {"detect", "stop", "form", "start", "import", "first step"};

int64_t board_part(const struct board_round *round, int part)
{
    const int64_t parts[BOARD_PARTS] = {round->detect_ms, round->stop_ms,   round->form_ms,
                                        round->start_ms,  round->import_ms, round->first_ms};
    return parts[part];
}

void board_html_text(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const char *quoted = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '"'  ? "&quot;"
                             : c == '\'' ? "&#39;"
                                         : NULL;
        if (quoted)
            buffer_text(out, quoted);
        else
            buffer_append(out, (c < ' ' && c != '\n' && c != '\t') || c == 127 ? "?" : text, 1);
    }
}

const char *board_duration(char *out, size_t size, int64_t ms)
{
    const long long s = (long long)ms / 1000;
    if (ms < 0)
        (void)snprintf(out, size, "-");
    else if (ms < 1000)
        (void)snprintf(out, size, "%lld ms", (long long)ms);
    else if (ms < 60000)
        (void)snprintf(out, size, "%.1f s", (double)ms / 1000);
    else if (s < 3600)
        (void)snprintf(out, size, "%lld:%02lld min", s / 60, s % 60);
    else
        (void)snprintf(out, size, "%lld:%02lld h", s / 3600, s / 60 % 60);
    return out;
}

const char *board_number(char *out, size_t size, double value)
{
    const double a = fabs(value);
    if (!isfinite(value))
        (void)snprintf(out, size, "-");
    else if (a >= 1e9)
        (void)snprintf(out, size, "%.2f G", value / 1e9);
    else if (a >= 1e6)
        (void)snprintf(out, size, "%.2f M", value / 1e6);
    else if (a >= 1e4)
        (void)snprintf(out, size, "%.1f k", value / 1e3);
    else if (a >= 100 || value == (int)value)
        (void)snprintf(out, size, "%.0f", value);
    else
        (void)snprintf(out, size, a >= 10 ? "%.1f" : a >= 0.01 ? "%.3f" : "%.1e", value);
    return out;
}

/* --- SVG --- */

static double place(int64_t at, int64_t from, int64_t to)
{
    const double x = to > from ? (double)(at - from) / (double)(to - from) * WIDE : 0;
    return board_within(x, 0, WIDE);
}

static void bar(struct buffer *out, const char *look, double from, double to, int y, int high)
{
    buffer_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", look, from, y,
                  board_within(to - from, 1, WIDE), high);
}

void board_svg_timeline(struct buffer *out, const struct board *board, int64_t end)
{
    const int64_t from = board->started_at;
    char text[24];
    buffer_printf(
        out,
        "<div class=\"plot\"><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" style=\"height:%dpx\">",
        WIDE, board->round_count * (ROW + 4), board->round_count * (ROW + 4));
    for (int i = 0; i < board->round_count; i++) {
        const struct board_round *round = &board->rounds[i];
        const int y = i * (ROW + 4);
        bar(out, "idle", 0, WIDE, y, ROW);
        bar(out, "ran", place(round->formed_at, from, end),
            place(round->stop_at >= 0 ? round->stop_at : end, from, end), y, ROW);
        if (round->first_step_at >= 0)
            bar(out, "steps", place(round->first_step_at, from, end), place(round->last_step_at, from, end),
                y, ROW);
        if (round->stop_at >= 0 && !round->planned && (*round->cause || i + 1 < board->round_count)) {
            const double x = place(round->stop_at, from, end);
            bar(out, "end", x - 1.5, x + 1.5, y, ROW);
        }
    }
    buffer_printf(out, "</svg></div><p class=\"axis\"><span>0</span><span>%s</span></p>",
                  board_duration(text, sizeof text, end - from));
}

void board_svg_recovery(struct buffer *out, const struct board_round *round)
{
    const int64_t recovery = board_recovery_ms(round);
    const double whole = recovery > 1 ? (double)recovery : 1;
    double x = 0;
    buffer_printf(out, "<svg class=\"parts\" viewBox=\"0 0 %d 10\" preserveAspectRatio=\"none\">", WIDE);
    for (int i = 0; i < BOARD_PARTS; i++) {
        char look[8];
        const int64_t ms = board_part(round, i);
        if (ms < 0)
            continue;
        const double next = x + (double)ms / whole * WIDE;
        (void)snprintf(look, sizeof look, "k%d", i);
        bar(out, look, x, next, 0, 10);
        x = next;
    }
    buffer_text(out, "</svg>");
}

static int round_of(const struct board *board, int64_t at)
{
    int round = 0;
    while (round < board->round_count && board->rounds[round].formed_at <= at)
        round++;
    return round;
}

void board_svg_curve(struct buffer *out, const struct board *board, const char *name,
                     double (*value)(const struct board_point *point))
{
    double low = INFINITY, high = -INFINITY, last = NAN;
    int count = 0;
    int64_t from = 0, to = 0;
    for (int i = 0; i < board->point_count; i++) {
        const double v = value(&board->points[i]);
        if (!isfinite(v))
            continue;
        from = count++ ? from : board->points[i].at;
        to = board->points[i].at;
        low = v < low ? v : low;
        high = v > high ? v : high;
        last = v;
    }
    if (count < 2)
        return;
    char texts[3][24];
    buffer_printf(
        out,
        "<div class=\"curve\"><h3>%s <span>%s</span></h3><div class=\"plot\"><svg viewBox=\"0 0 %d %d\" "
        "preserveAspectRatio=\"none\" style=\"height:%dpx\"><path class=\"line\" d=\"",
        name, board_number(texts[0], sizeof texts[0], last), WIDE, CURVE_HIGH, CURVE_HIGH);
    int before = -1;
    for (int i = 0; i < board->point_count; i++) {
        const struct board_point *point = &board->points[i];
        const double v = value(point);
        if (!isfinite(v))
            continue;
        const int round = round_of(board, point->at);
        buffer_printf(out, "%c%.1f %.1f", round == before ? 'L' : 'M', place(point->at, from, to),
                      high > low ? 5 + (CURVE_HIGH - 10) * (high - v) / (high - low) : CURVE_HIGH / 2.0);
        before = round;
    }
    buffer_printf(out, "\"/></svg></div><p class=\"axis\"><span>%s to %s</span></p></div>",
                  board_number(texts[1], sizeof texts[1], low),
                  board_number(texts[2], sizeof texts[2], high));
}
