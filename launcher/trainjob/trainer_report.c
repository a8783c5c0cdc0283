/* trainer_report.c - see trainer_report.h. */
#include "launcher/trainjob/trainer_report.h"

#include <string.h>

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

/* A header is one line: nothing behind the first blank belongs to the token. */
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
