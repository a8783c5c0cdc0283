/* tasks.c - see tasks.h. */
#include "trainer/tasks/tasks.h"

#include <math.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/json/json_text.h"
#include "trainer/tokens/unicode.h"

static const char *const task_names[] = {"", "hellaswag", "arc", "lambada"};

enum task_kind task_by_name(const char *name)
{
    for (int kind = TASK_HELLASWAG; kind <= TASK_LAMBADA; kind++)
        if (!strcmp(name, task_names[kind]))
            return (enum task_kind)kind;
    return TASK_NONE;
}

const char *task_name(enum task_kind kind)
{
    return task_names[kind];
}

void task_destroy(struct task *task)
{
    if (!task)
        return;
    for (size_t i = 0; i < task->requests; i++) {
        mem_free(task->request[i].context);
        mem_free(task->request[i].continuation);
    }
    mem_free(task->request);
    mem_free(task->row);
    mem_free(task);
}

/* ---- texts ---- */

static bool is_blank(const char *text, size_t length)
{
    return unicode_next(text, length).classes & UNICODE_BLANK;
}

/* The range of a text without blanks around, as Python's strip. */
static void strip_blanks(const char **text, size_t *length)
{
    while (*length && is_blank(*text, *length)) {
        const size_t bytes = unicode_next(*text, *length).length;
        *text += bytes;
        *length -= bytes;
    }
    for (size_t bytes;
         *length && (bytes = unicode_last(*text, *length)) && is_blank(*text + *length - bytes, bytes);)
        *length -= bytes;
}

/* The capital letter of a code point; itself where there is none. */
static uint32_t capital_of(uint32_t point)
{
    if (point < 0x80)
        return point - 'a' < 26 ? point - 32 : point;
    for (uint32_t upper = 0x80; upper < 0x1E944; upper++)
        if (upper != point && unicode_lower(upper) == point)
            return upper;
    return point;
}

/* As Python's capitalize: one capital letter, and small ones. */
static void put_capitalized(const char *text, struct buffer *out)
{
    const size_t length = strlen(text);
    for (size_t at = 0; at < length;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        char bytes[4];
        const uint32_t point = at ? unicode_lower(c.point) : capital_of(c.point);
        if (point == c.point)
            (void)buffer_append(out, text + at, c.length); /* out remembers a failure */
        else
            (void)buffer_append(out, bytes, unicode_write(point, bytes));
        at += c.length;
    }
}

static void put_with(const char *text, size_t length, const char *what, const char *by, struct buffer *out)
{
    for (const char *found; (found = memmem(text, length, what, strlen(what)));) {
        (void)buffer_append(out, text, (size_t)(found - text)); /* out remembers a failure */
        (void)buffer_text(out, by);
        length -= (size_t)(found - text) + strlen(what);
        text = found + strlen(what);
    }
    (void)buffer_append(out, text, length);
}

/* Without [brackets] and their content, within a line. */
static void put_without_brackets(const char *text, size_t length, struct buffer *out)
{
    for (size_t at = 0; at < length; at++) {
        if (text[at] == '[') {
            size_t end = at + 1;
            while (end < length && text[end] != ']' && text[end] != '\n')
                end++;
            if (end < length && text[end] == ']') {
                at = end;
                continue;
            }
        }
        (void)buffer_append(out, text + at, 1); /* out remembers a failure */
    }
}

/* WikiHow's marks leave a HellaSwag text. Adds the text and a NUL. */
static void put_hellaswag(const char *text, struct buffer *out)
{
    scope_buffer titled = {0}, bare = {0};
    size_t length = strlen(text);
    strip_blanks(&text, &length);
    put_with(text, length, " [title]", ". ", &titled);
    put_without_brackets(titled.data ? titled.data : "", titled.length, &bare);
    put_with(bare.data ? bare.data : "", bare.length, "  ", " ", out);
    out->failed = out->failed || titled.failed || bare.failed || buffer_append(out, "", 1) < 0;
}

/* ---- requests ---- */

static int64_t characters_of(const char *text)
{
    int64_t count = 0;
    for (size_t at = 0, length = strlen(text); at < length; count++)
        at += unicode_next(text + at, length - at).length;
    return count;
}

/* Blanks at the end of the context belong to the continuation. */
static int add_request(struct task *task, const char *context, const char *blank, const char *choice,
                       struct muster_error *err)
{
    if (task->requests == task->request_capacity) {
        const size_t wanted = task->request_capacity * 2 + 64;
        struct task_request *grown = mem_realloc(task->request, wanted, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a task");
        task->request = grown;
        task->request_capacity = wanted;
    }
    size_t length = strlen(context);
    for (size_t bytes;
         length && (bytes = unicode_last(context, length)) && is_blank(context + length - bytes, bytes);)
        length -= bytes;
    struct task_request *r = &task->request[task->requests++];
    *r = (struct task_request){.context = mem_strndup(context, length),
                               .continuation = mem_printf("%s%s%s", context + length, blank, choice),
                               .characters = characters_of(choice)};
    return r->context && r->continuation ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a task");
}

static int invalid_row(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_INVALID, "%s", what);
}

/* A field that is a text; NULL: it is not. */
static const char *text_field(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static int add_hellaswag(struct task *task, const json_t *row, struct task_row *out, struct muster_error *err)
{
    const char *label = text_field(row, "activity_label"), *first = text_field(row, "ctx_a"),
               *second = text_field(row, "ctx_b");
    const json_t *endings = json_object_get(row, "endings"), *gold = json_object_get(row, "label"), *ending;
    scope_buffer whole = {0}, query = {0};
    size_t i;
    if (!label || !first || !second || !json_array_size(endings))
        return invalid_row(err, "it has no activity_label, ctx_a, ctx_b or endings");
    const char *number = json_string_value(gold); /* the set on the Hub has a text, the authors' a number */
    out->gold = json_is_integer(gold) ? (size_t)json_integer_value(gold)
                : number && number[0] >= '0' && number[0] <= '9' && !number[1] ? (size_t)(number[0] - '0')
                                                                               : json_array_size(endings);
    if (out->gold >= json_array_size(endings))
        return invalid_row(err, "label is no number of an ending");
    (void)buffer_printf(&whole, "%s: %s ", label, first);
    put_capitalized(second, &whole);
    if (!buffer_append(&whole, "", 1))
        put_hellaswag(whole.data, &query);
    if (whole.failed || query.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a task");
    json_array_foreach(endings, i, ending)
    {
        scope_buffer choice = {0};
        if (!json_is_string(ending))
            return invalid_row(err, "an ending is no text");
        put_hellaswag(json_string_value(ending), &choice);
        if (choice.failed)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a task");
        if (add_request(task, query.data, " ", choice.data, err) < 0)
            return -1;
    }
    return 0;
}

/* The Hub's {"choices": {"text": [...], "label": [...]}}, or the authors' {"question": {"stem", "choices":
 * [{"text", "label"}]}}. */
static int add_arc(struct task *task, const json_t *row, struct task_row *out, struct muster_error *err)
{
    const json_t *question = json_object_get(row, "question"), *choices = json_object_get(row, "choices"),
                 *inner = json_object_get(question, "choices"), *texts = json_object_get(choices, "text"),
                 *labels = json_object_get(choices, "label");
    const char *asked = json_is_object(question) ? text_field(question, "stem") : json_string_value(question),
               *answer = text_field(row, "answerKey");
    const size_t count = inner ? json_array_size(inner) : json_array_size(texts);
    if (!asked || !answer || !count || (!inner && json_array_size(labels) != count))
        return invalid_row(err, "it has no question, choices or answerKey");
    scope_free char *context = mem_printf("Question: %s\nAnswer:", asked);
    if (!context)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a task");
    out->gold = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *each = json_array_get(inner, i);
        const char *text = inner ? text_field(each, "text") : json_string_value(json_array_get(texts, i)),
                   *label = inner ? text_field(each, "label") : json_string_value(json_array_get(labels, i));
        if (!text || !label)
            return invalid_row(err, "a choice has no text or no label");
        if (out->gold == count && !strcmp(label, answer))
            out->gold = i;
        if (add_request(task, context, " ", text, err) < 0)
            return -1;
    }
    return out->gold < count ? 0 : invalid_row(err, "answerKey is the label of no choice");
}

/* The last word after the last blank of the text. */
static int add_lambada(struct task *task, const json_t *row, struct muster_error *err)
{
    const char *text = text_field(row, "text"), *blank = text ? strrchr(text, ' ') : NULL;
    if (!text || !*text)
        return invalid_row(err, "it has no text");
    scope_free char *context = mem_strndup(text, blank ? (size_t)(blank - text) : 0);
    return context ? add_request(task, context, " ", blank ? blank + 1 : text, err)
                   : error_set(err, MUSTER_E_NOMEM, "no memory for a task");
}

static int add_task_row(struct task *task, const json_t *json, int64_t line, struct muster_error *err)
{
    if (task->rows == task->row_capacity) {
        const size_t wanted = task->row_capacity * 2 + 64;
        struct task_row *grown = mem_realloc(task->row, wanted, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a task");
        task->row = grown;
        task->row_capacity = wanted;
    }
    struct task_row row = {.first = task->requests, .line = line};
    const int failed = task->kind == TASK_HELLASWAG ? add_hellaswag(task, json, &row, err)
                       : task->kind == TASK_ARC     ? add_arc(task, json, &row, err)
                                                    : add_lambada(task, json, err);
    row.count = task->requests - row.first;
    if (!failed)
        task->row[task->rows++] = row;
    return failed;
}

static bool is_empty_line(const char *text, size_t length)
{
    while (length && strchr(" \t\r", text[length - 1]) && text[length - 1])
        length--;
    return !length;
}

struct task *task_parse(enum task_kind kind, const char *name, const char *text, size_t length,
                        struct muster_error *err)
{
    GUARD(guard_task) struct task *task = mem_calloc(1, sizeof *task);
    if (!task) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a task");
        return NULL;
    }
    task->kind = kind;
    for (size_t at = 0, line = 1; at < length; line++) {
        const char *begin = text + at, *end = memchr(begin, '\n', length - at);
        const size_t bytes = end ? (size_t)(end - begin) : length - at;
        char place[300];
        at += bytes + 1;
        if (is_empty_line(begin, bytes))
            continue;
        (void)snprintf(place, sizeof place, "%.200s:%zu", name, line); /* fits */
        GUARD(guard_json) json_t *json = json_text_object(place, begin, bytes, 0, err);
        if (!json)
            return NULL;
        if (add_task_row(task, json, (int64_t)line, err) < 0) {
            (void)error_wrap(err, "%s: a row of %s", place, task_name(kind));
            return NULL;
        }
    }
    if (task->rows)
        return take_pointer(&task);
    (void)error_set(err, MUSTER_E_INVALID, "%s: there is no row of %s", name, task_name(kind));
    return NULL;
}

/* ---- figures ---- */

/* The first of the largest values, each divided by the characters of its choice if `by_character`. */
static size_t best_choice(const struct task *task, const struct task_row *row, const double *likelihoods,
                          bool by_character)
{
    size_t best = 0;
    double most = -INFINITY;
    for (size_t i = 0; i < row->count; i++) {
        const struct task_request *r = &task->request[row->first + i];
        const double value = likelihoods[row->first + i] / (by_character ? (double)r->characters : 1);
        if (value > most) {
            most = value;
            best = i;
        }
    }
    return best;
}

/* For a mean of zeros and ones. */
static double standard_error(double mean, size_t rows)
{
    return rows > 1 ? sqrt(mean * (1 - mean) / (double)(rows - 1)) : NAN;
}

struct task_result task_score(const struct task *task, const double *likelihoods, const bool *greedy)
{
    struct task_result result = {.acc_norm = NAN, .acc_norm_stderr = NAN, .perplexity = NAN};
    const double rows = (double)task->rows;
    double right = 0, right_by_character = 0, sum = 0;
    for (size_t i = 0; i < task->rows; i++) {
        const struct task_row *row = &task->row[i];
        if (task->kind == TASK_LAMBADA) {
            right += greedy[row->first];
            sum += likelihoods[row->first];
            continue;
        }
        right += best_choice(task, row, likelihoods, false) == row->gold;
        right_by_character += best_choice(task, row, likelihoods, true) == row->gold;
    }
    result.acc = right / rows;
    result.acc_stderr = standard_error(result.acc, task->rows);
    if (task->kind == TASK_LAMBADA) {
        result.perplexity = exp(-sum / rows);
    } else {
        result.acc_norm = right_by_character / rows;
        result.acc_norm_stderr = standard_error(result.acc_norm, task->rows);
    }
    return result;
}
