/* trainer_status.c - see trainer_status.h. */
#include "launcher/trainjob/trainer_status.h"

#include <math.h>
#include <time.h>

enum { SPAN = 32 }; /* points of the curve over which the speed is taken */

/* Of the first rank that has handed over figures: those of all ranks say the same. */
static const struct worker_figures *figures_of(const struct board *board)
{
    for (int i = 0; i < board->node_count; i++)
        for (int j = 0; j < board->nodes[i].rank_count; j++)
            if (board->nodes[i].ranks[j].figures.there)
                return &board->nodes[i].ranks[j].figures;
    return NULL;
}

/* Milliseconds a step, of the present round; NAN where it is not known. */
static double pace(const struct board *board, const struct worker_figures *figures)
{
    const int64_t begun = board->round_count ? board->rounds[board->round_count - 1].formed_at : 0;
    const struct board_point *last = board->point_count ? &board->points[board->point_count - 1] : NULL;
    const struct board_point *first = last;
    for (int i = board->point_count - 1; i >= 0 && i > board->point_count - SPAN; i--)
        if (board->points[i].at >= begun && board->points[i].step < last->step)
            first = &board->points[i];
    if (last && last->step > first->step)
        return (double)(last->at - first->at) / (double)(last->step - first->step);
    return figures && figures->has[FIGURE_STEP_MS] ? figures->value[FIGURE_STEP_MS] : NAN;
}

static void progress(const struct board *board, const struct worker_figures *figures, int64_t step,
                     struct buffer *out)
{
    const double total =
        figures && figures->has[FIGURE_TOTAL_STEPS] ? figures->value[FIGURE_TOTAL_STEPS] : NAN;
    const double each = pace(board, figures);
    if (board->over && !board->exit_code) {
        buffer_text(out, "\"progressPercentage\":100,\"estimatedRemainingSeconds\":0,");
        return;
    }
    if (!(total >= 1) || step < 0)
        return;
    buffer_printf(out, "\"progressPercentage\":%d,", (int)board_within(100 * (double)step / total, 0, 100));
    if (each >= 0 && !board->over)
        buffer_printf(out, "\"estimatedRemainingSeconds\":%.0f,",
                      board_within((total - (double)step) * each / 1000, 0, INT32_MAX));
}

static void metric(struct buffer *out, const char **before, const char *name, double value)
{
    if (!isfinite(value))
        return;
    buffer_printf(out, "%s{\"name\":\"%s\",\"value\":\"%.9g\"}", *before, name, value);
    *before = ",";
}

/* Which rank is slow is for the page: it is no metric. */
static void metrics(const struct board *board, const struct worker_figures *figures, int64_t step,
                    struct buffer *out)
{
    const char *before = "";
    buffer_text(out, "\"metrics\":[");
    if (step >= 0)
        metric(out, &before, "step", (double)step);
    if (board->round_count)
        metric(out, &before, "restarts", (double)board->rounds[board->round_count - 1].restarts);
    for (int i = 0; figures && i < FIGURE_COUNT; i++)
        if (figures->has[i] && i != FIGURE_SLOW_RANK && i != FIGURE_SLOW_MS)
            metric(out, &before, figure_row((enum figure)i)->name, figures->value[i]);
    for (int i = 0; figures && i < figures->own_count; i++)
        metric(out, &before, figures->own[i].name, figures->own[i].value);
    buffer_text(out, "],");
}

bool trainer_status_json(const struct board *board, int64_t now, struct buffer *out)
{
    const struct worker_figures *figures = figures_of(board);
    const time_t seconds = (time_t)(now / 1000);
    int64_t lowest, step;
    char when[40] = "";
    struct tm utc;
    const bool stepped = board_steps(board, &lowest, &step);
    if (!stepped && !figures)
        return false;
    if (gmtime_r(&seconds, &utc))
        (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    buffer_text(out, "{\"trainerStatus\":{");
    progress(board, figures, stepped ? step : -1, out);
    metrics(board, figures, stepped ? step : -1, out);
    buffer_printf(out, "\"lastUpdatedTime\":\"%s\"}}", when);
    return true;
}
