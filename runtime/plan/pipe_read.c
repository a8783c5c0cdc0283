/* pipe_read.c - a table from text, and a table as text. Each wrong call is named by file, rank and number. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/plan/pipe.h"

static const char letters[] = "FBIW"; /* by pipe_phase */

struct pipe_reader {
    const char *name;
    int parts, layers; /* 0: any number */
    struct pipe_table *table;
    int *end;
    struct muster_error *err;
};

static int refuse_cell(const struct pipe_reader *r, int rank, int call, const char *cell, int length,
                       const char *why)
{
    return error_set(r->err, MUSTER_E_INVALID, "schedule %s, rank %d, call %d: '%.*s' %s", r->name, rank,
                     call + 1, length > 40 ? 40 : length, cell, why);
}

static const char *read_call_number(const char *at, const char *end, int *value)
{
    int64_t number = 0;
    const char *begin = at;
    for (; at < end && isdigit((unsigned char)*at); at++)
        if ((number = number * 10 + (*at - '0')) > PIPE_CALLS)
            return NULL;
    *value = (int)number;
    return at == begin ? NULL : at;
}

/* A transfer, or a change of a parameter's memory: both follow from the calls. */
static bool is_passed_over(const char *at, const char *end)
{
    static const char *const names[] = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                        "UNSHARD", "RESHARD", "REDUCE_GRAD"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t length = strlen(names[i]);
        if ((size_t)(end - at) >= length && !memcmp(at, names[i], length) &&
            (at + length == end || isdigit((unsigned char)at[length])))
            return true;
    }
    return false;
}

/* Reads one call: a part, a letter, a micro-batch. */
static int read_call(struct pipe_reader *r, int rank, const char *at, const char *end)
{
    struct pipe_table *t = r->table;
    const int number = t->first[rank + 1] - t->first[rank], length = (int)(end - at);
    int part, micro;
    const char *begin = at;
    if (!(at = read_call_number(at, end, &part)) || at == end)
        return refuse_cell(r, rank, number, begin, length, "is no call: write 0F1 for a forward of part 0");
    if (is_passed_over(at, end))
        return 0;
    const char *letter = strchr(letters, *at);
    if (!letter || !*at || read_call_number(at + 1, end, &micro) != end)
        return refuse_cell(r, rank, number, begin, length,
                           "is no call: write a part, a letter (F, B, I or W) and a micro-batch");
    if (part >= PIPE_PARTS || t->first[rank + 1] == PIPE_CALLS)
        return error_set(r->err, MUSTER_E_LIMIT,
                         "schedule %s, rank %d, call %d: at most %d parts and %d calls", r->name, rank,
                         number + 1, PIPE_PARTS, PIPE_CALLS);
    t->calls[t->first[rank + 1]++] = (struct pipe_call){(uint8_t)(letter - letters), (uint8_t)part, micro};
    return 0;
}

/* A cell, or the cells of a group that torch writes as (0F1;1B2)OVERLAP_F_B. */
static int read_cell(struct pipe_reader *r, int rank, const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (at < end && isspace((unsigned char)end[-1]))
        end--;
    if (at < end && *at == '(') {
        const char *close = memchr(at, ')', (size_t)(end - at));
        for (const char *cell = at + 1; close && cell <= close;) {
            const char *next = memchr(cell, ';', (size_t)(close - cell));
            next = next ? next : close;
            if (read_cell(r, rank, cell, next) < 0)
                return -1;
            cell = next + 1;
        }
        return close ? 0
                     : refuse_cell(r, rank, r->table->first[rank + 1] - r->table->first[rank], at,
                                   (int)(end - at), "has no closing ')'");
    }
    return at == end ? 0 : read_call(r, rank, at, end);
}

static int read_lines(struct pipe_reader *r, const char *text)
{
    struct pipe_table *t = r->table;
    for (const char *line = text; *line;) {
        const char *end = line + strcspn(line, "\n");
        if (*line != '#' && line + strspn(line, " \t\r") < end) {
            if (t->ranks == PIPE_PARTS)
                return error_set(r->err, MUSTER_E_LIMIT, "schedule %s: more than %d ranks", r->name,
                                 PIPE_PARTS);
            const int rank = t->ranks++;
            t->first[rank + 1] = t->first[rank];
            for (const char *cell = line; cell <= end;) {
                const char *next = cell;
                while (next < end && *next != ',')
                    next++;
                if (read_cell(r, rank, cell, next) < 0)
                    return -1;
                cell = next + 1;
            }
        }
        line = *end ? end + 1 : end;
    }
    return t->ranks ? 0
                    : error_set(r->err, MUSTER_E_INVALID, "schedule %s has no ranks: write a line a rank",
                                r->name);
}

/* ---- the calls of a rank ---- */

static int refuse_call(const struct pipe_reader *r, int rank, int index, const char *why, char needed)
{
    const struct pipe_table *t = r->table;
    const struct pipe_call *call = &t->calls[index];
    char other[32] = "";
    if (needed)
        (void)snprintf(other, sizeof other, " %d%c%d", call->part, needed, call->micro);
    return error_set(r->err, MUSTER_E_INVALID, "schedule %s, rank %d, call %d: %d%c%d %s%s", r->name, rank,
                     index - t->first[rank] + 1, call->part, letters[call->phase], call->micro, why, other);
}

/* Finds the numbers of parts and micro-batches, and where each part is. */
static int find_sizes(struct pipe_reader *r)
{
    struct pipe_table *t = r->table;
    const int most = r->parts ? r->parts : r->layers;
    int owner[PIPE_PARTS];
    for (int part = 0; part < PIPE_PARTS; part++)
        owner[part] = -1;
    for (int rank = 0; rank < t->ranks; rank++)
        for (int i = t->first[rank]; i < t->first[rank + 1]; i++) {
            const struct pipe_call *call = &t->calls[i];
            if (most && call->part >= most)
                return error_set(r->err, MUSTER_E_INVALID,
                                 "schedule %s, rank %d, call %d: %d%c%d: the model has %d %s", r->name, rank,
                                 i - t->first[rank] + 1, call->part, letters[call->phase], call->micro, most,
                                 r->parts ? "parts" : "layers, and so many parts at most");
            if (owner[call->part] >= 0 && owner[call->part] != rank)
                return error_set(r->err, MUSTER_E_INVALID,
                                 "schedule %s, rank %d, call %d: part %d is called by rank %d, too", r->name,
                                 rank, i - t->first[rank] + 1, call->part, owner[call->part]);
            owner[call->part] = rank;
            t->parts = call->part >= t->parts ? call->part + 1 : t->parts;
            t->micros = call->micro >= t->micros ? call->micro + 1 : t->micros;
        }
    t->parts = r->parts ? r->parts : t->parts;
    for (int part = 0; part < t->parts; part++) {
        if (owner[part] < 0)
            return error_set(r->err, MUSTER_E_INVALID, "schedule %s: no rank calls part %d of %d", r->name,
                             part, t->parts);
        t->rank_of[part] = (uint8_t)owner[part];
    }
    if ((int64_t)t->parts * t->micros > PIPE_CALLS)
        return error_set(r->err, MUSTER_E_LIMIT,
                         "schedule %s names micro-batch %d of %d parts: more than %d calls", r->name,
                         t->micros - 1, t->parts, PIPE_CALLS);
    return 0;
}

/* Each call comes once, and after the calls of its own part that it needs. */
static int check_rank(struct pipe_reader *r, int rank, uint8_t *seen)
{
    const struct pipe_table *t = r->table;
    for (int i = t->first[rank]; i < t->first[rank + 1]; i++) {
        const struct pipe_call *call = &t->calls[i];
        uint8_t *cell = &seen[call->part * t->micros + call->micro];
        const uint8_t bit = (uint8_t)(1U << call->phase), whole = 1U << PIPE_BACKWARD,
                      halves = 1U << PIPE_INPUT | 1U << PIPE_WEIGHT;
        if (*cell & bit || (bit == whole && *cell & halves) || (bit & halves && *cell & whole))
            return refuse_call(r, rank, i, "comes twice", '\0');
        if (call->phase != PIPE_FORWARD && !(*cell & 1U << PIPE_FORWARD))
            return refuse_call(r, rank, i, "comes before", 'F');
        if (call->phase == PIPE_WEIGHT && !(*cell & 1U << PIPE_INPUT))
            return refuse_call(r, rank, i, "comes before", 'I');
        *cell |= bit;
    }
    return 0;
}

/* Calls that lack. A backward in two halves counts as two. */
static int check_count(struct pipe_reader *r, int rank, const uint8_t *seen)
{
    const struct pipe_table *t = r->table;
    const int calls = t->first[rank + 1] - t->first[rank];
    int wanted = 0;
    for (int part = 0; part < t->parts; part++)
        for (int m = 0; t->rank_of[part] == rank && m < t->micros; m++)
            wanted += seen[part * t->micros + m] & (1U << PIPE_INPUT | 1U << PIPE_WEIGHT) ? 3 : 2;
    return calls == wanted ? 0
                           : error_set(r->err, MUSTER_E_INVALID, "schedule %s: rank %d has %d calls, not %d",
                                       r->name, rank, calls, wanted);
}

static int prove(struct pipe_reader *r)
{
    struct pipe_table *t = r->table;
    if (find_sizes(r) < 0)
        return -1;
    scope_free uint8_t *seen = mem_calloc((size_t)t->parts * (size_t)t->micros, 1);
    scope_free int *end = mem_calloc((size_t)t->first[t->ranks] + 1, sizeof *end);
    if (!seen || !end)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to prove schedule %s", r->name);
    for (int rank = 0; rank < t->ranks; rank++)
        if (check_rank(r, rank, seen) < 0)
            return -1;
    for (int rank = 0; rank < t->ranks; rank++)
        if (check_count(r, rank, seen) < 0)
            return -1;
    return pipe_table_times(t, end, r->err) < 0 ? error_wrap(r->err, "schedule %s", r->name) : 0;
}

int pipe_table_read(const char *name, const char *text, int parts, int layers, struct pipe_table *table,
                    struct muster_error *err)
{
    size_t most = 1; /* calls: no more than numbers of the text */
    for (const char *at = text; *at; at++)
        most += *at == ',' || *at == ';' || *at == '\n';
    *table =
        (struct pipe_table){.calls = mem_calloc(most < PIPE_CALLS ? most : PIPE_CALLS, sizeof *table->calls)};
    struct pipe_reader r = {.name = name, .parts = parts, .layers = layers, .table = table, .err = err};
    int result = table->calls ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory to read schedule %s", name);
    if (result || read_lines(&r, text) < 0 || prove(&r) < 0) {
        pipe_table_free(table);
        result = -1;
    }
    return result;
}

/* ---- text ---- */

/* The most calls of forward of a rank whose activations it holds at a time. */
static int most_held(const struct pipe_table *t, int rank)
{
    int held = 0, most = 0;
    for (int i = t->first[rank]; i < t->first[rank + 1]; i++) {
        const uint8_t phase = t->calls[i].phase;
        held += phase == PIPE_FORWARD;
        most = held > most ? held : most;
        held -= phase == PIPE_BACKWARD || phase == PIPE_WEIGHT;
    }
    return most;
}

const char *pipe_table_text(const struct pipe_table *t, char *text, size_t size)
{
    static const int ticks[PIPE_PHASES] = {1, 2, 1, 1};
    const int calls = t->first[t->ranks];
    scope_free int *end = mem_calloc((size_t)calls + 1, sizeof *end);
    int64_t span = 0, busy = 0;
    int most = 0, at = 0;
    if (!end || pipe_table_times(t, end, NULL) < 0) {
        (void)snprintf(text, size, "no memory, or not proved");
        return text;
    }
    for (int i = 0; i < calls; i++) {
        span = end[i] > span ? end[i] : span;
        busy += ticks[t->calls[i].phase];
    }
    for (int rank = 0; rank < t->ranks; rank++)
        if (most_held(t, rank) > most) {
            most = most_held(t, rank);
            at = rank;
        }
    (void)snprintf(
        text, size,
        "%d ranks, %d parts (%s), %d micro-batches, %d calls%s: nothing waits for ever; idle %.1f%% "
        "with free transfers; rank %d keeps the most activations, of %d calls",
        t->ranks, t->parts,
        pipe_is_loop(t) ? t->parts > t->ranks ? "a loop" : "a line" : "not in the order of ranks", t->micros,
        calls, pipe_is_split(t) ? ", split backwards" : "",
        span ? 100 * (1 - (double)busy / (double)(span * t->ranks)) : 0, at, most);
    return text;
}
