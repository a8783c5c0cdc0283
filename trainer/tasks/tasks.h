/* tasks.h - multiple choice, and the last word of a text, in JSON lines, as lm-evaluation-harness asks and
 * scores them. Pure.
 *
 * A row becomes requests: the log-likelihood of a continuation after a context. Texts and figures are the
 * harness's (tasks hellaswag, arc_easy and arc_challenge, lambada_openai): acc takes the likeliest choice,
 * acc_norm the likeliest by character, perplexity is over continuations. */
#ifndef MUSTER_TRAINER_TASKS_TASKS_H
#define MUSTER_TRAINER_TASKS_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/tokens/tokenizer.h"

enum task_kind { TASK_NONE, TASK_HELLASWAG, TASK_ARC, TASK_LAMBADA };

/* TASK_NONE: there is no task of this name. */
enum task_kind task_by_name(const char *name);
const char *task_name(enum task_kind kind);

struct task_request {
    char *context;      /* without blanks at its end */
    char *continuation; /* begins with them, or with a blank */
    int64_t characters; /* the length of the choice */
};

struct task_row {
    size_t first, count; /* its requests */
    size_t gold;         /* the right one, from 0 */
    int64_t line;        /* in the file, from 1 */
};

struct task {
    enum task_kind kind;
    struct task_request *request;
    struct task_row *row;
    size_t requests, rows, request_capacity, row_capacity;
};

/* Reads JSON lines; name is for errors. MUSTER_E_INVALID "NAME:LINE: ...". NULL on error. */
struct task *task_parse(enum task_kind kind, const char *name, const char *text, size_t length,
                        struct muster_error *err);
void task_destroy(struct task *task); /* accepts NULL */
GUARD_DEFINE(task, struct task *, task_destroy);

/* Standard errors are of the mean over rows; NaN with fewer than two. */
struct task_result {
    double acc, acc_stderr;
    double acc_norm, acc_norm_stderr; /* NaN: the task has none */
    double perplexity;                /* NaN: the task has none */
};

/* likelihoods: a log-likelihood for each request. greedy: whether each token of the request was the
 * likeliest. */
struct task_result task_score(const struct task *task, const double *likelihoods, const bool *greedy);

/* ---- tokens.c ---- */

/* The tokens of a request: the context's, then the continuation's. */
struct task_tokens {
    int32_t *tokens; /* (count); mem_free */
    int64_t context, count;
};

/* Encodes the requests of a task, (requests); name is for errors. *longest: positions of a forward pass that
 * has every request whole. */
int task_encode(const struct task *task, const char *name, struct tokenizer *tokenizer,
                struct task_tokens *out, int64_t *longest, struct muster_error *err);
/* The arrays of a forward pass, (positions): the last tokens of the request, and targets in its continuation.
 * The other positions count nothing (-1). */
void task_lay_out(const struct task_tokens *request, int64_t positions, int32_t *inputs, int32_t *targets);

#endif
