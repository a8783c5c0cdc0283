/* trainer_report.c - see trainer_report.h. */
#include "launcher/trainjob/trainer_report.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "launcher/trainjob/https_post.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

enum { TOKEN_LIMIT = 16 * 1024, OK = 200, NEXT = 300 };

struct trainer_report {
    char *url, *token_file, *ca_file; /* the latter two may be NULL */
    struct buffer body;
    struct muster_error err;
};

static void report_free(void *payload)
{
    struct trainer_report *report = payload;
    mem_free(report->url);
    mem_free(report->token_file);
    mem_free(report->ca_file);
    buffer_free(&report->body);
    mem_free(report);
}

/* A header is one line: the token ends at the first blank. */
static int read_token(struct trainer_report *report, struct buffer *token)
{
    if (!report->token_file)
        return 0;
    if (io_read_file(report->token_file, TOKEN_LIMIT, token, &report->err) < 0)
        return error_wrap(&report->err, "the token");
    if (token->data)
        token->data[strcspn(token->data, " \t\r\n")] = '\0';
    return token->data && *token->data
               ? 0
               : error_set(&report->err, MUSTER_E_INVALID, "%s holds no token", report->token_file);
}

static void send_report(void *payload)
{
    struct trainer_report *report = payload;
    scope_buffer token = {0}, answer = {0};
    int status = 0;
    if (read_token(report, &token) < 0)
        return;
    const struct https_request request = {.url = report->url,
                                          .token = token.data,
                                          .ca_file = report->ca_file,
                                          .content_type = "application/json",
                                          .body = report->body.data,
                                          .length = report->body.length};
    if (https_post(&request, &status, &answer, &report->err) == 0 && (status < OK || status >= NEXT))
        (void)error_set(&report->err, MUSTER_E_REFUSED, "%s answered with status %d: %.*s", report->url,
                        status, (int)strcspn(answer.data ? answer.data : "", "\n"),
                        answer.data ? answer.data : "");
}

static char *report_copy(const char *text, bool *failed)
{
    char *made = text ? mem_strdup(text) : NULL;
    *failed = *failed || (text && !made);
    return made;
}

struct background_job *trainer_report_start(const struct trainer_place *place, struct buffer *body,
                                            struct trainer_report **report, struct muster_error *err)
{
    struct trainer_report *made = *report = mem_calloc(1, sizeof *made);
    bool failed = !made || body->failed;
    if (made) {
        made->url = report_copy(place->url, &failed);
        made->token_file = report_copy(place->token_file, &failed);
        made->ca_file = report_copy(place->ca_file, &failed);
        made->body = *body;
        *body = (struct buffer){0};
    }
    if (failed) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the job's progress");
        if (made)
            report_free(made);
        return NULL;
    }
    return background_job_start("reporting the job's progress", send_report, made, report_free, err);
}

const struct muster_error *trainer_report_error(const struct trainer_report *report)
{
    return &report->err;
}

/* --- the status --- */

enum { SPAN = 32 }; /* points of the curve over which the speed is taken */

/* The figures of the first rank that has handed some over: all ranks say the same. */
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
