/* tokens.c - see tasks.h: the tokens of requests, and their place in a forward pass. */
#include <string.h>

#include "proto/base/error.h"
#include "trainer/tasks/tasks.h"

enum { NO_TARGET = -1 };

static int encode_text(struct tokenizer *tokenizer, const char *text, struct token_list *out,
                       struct muster_error *err)
{
    return *text ? tokenizer_encode(tokenizer, text, strlen(text), out, err) : 0;
}

/* The tokens of both texts together, without the first ones, of the context, are the continuation's. Without
 * a context a document begins. */
static int encode_request(struct tokenizer *tokenizer, const struct task_request *request,
                          struct task_tokens *out, struct muster_error *err)
{
    scope_free char *both = mem_printf("%s%s", request->context, request->continuation);
    scope_token_list whole = {0}, context = {0};
    if (!both)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a request");
    const struct tokenizer_special special = tokenizer_special(tokenizer);
    const int32_t first = special.bos >= 0 ? special.bos : special.eos;
    if (!*request->context) {
        if (first < 0)
            return error_set(err, MUSTER_E_INVALID,
                             "it has no context, and the tokenizer (%s) has no token that begins a text",
                             tokenizer_kind(tokenizer));
        token_list_add(&whole, &first, 1);
        token_list_add(&context, &first, 1);
    }
    if (encode_text(tokenizer, both, &whole, err) < 0 ||
        encode_text(tokenizer, request->context, &context, err) < 0)
        return -1;
    if (whole.failed || context.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a request");
    if (whole.count <= context.count)
        return error_set(err, MUSTER_E_INVALID, "the continuation '%.60s' has no token of its own",
                         request->continuation);
    *out = (struct task_tokens){whole.tokens, (int64_t)context.count, (int64_t)whole.count};
    whole.tokens = NULL;
    return 0;
}

int task_encode(const struct task *task, const char *name, struct tokenizer *tokenizer,
                struct task_tokens *out, int64_t *longest, struct muster_error *err)
{
    *longest = 0;
    for (size_t row = 0; row < task->rows; row++)
        for (size_t i = task->row[row].first; i < task->row[row].first + task->row[row].count; i++) {
            if (encode_request(tokenizer, &task->request[i], &out[i], err) < 0)
                return error_wrap(err, "%s:%lld", name, (long long)task->row[row].line);
            *longest = out[i].count - 1 > *longest ? out[i].count - 1 : *longest;
        }
    return 0;
}

void task_lay_out(const struct task_tokens *r, int64_t positions, int32_t *inputs, int32_t *targets)
{
    const int64_t last = r->count - 1, from = last > positions ? last - positions : 0;
    for (int64_t i = 0; i < positions; i++) {
        const int64_t at = from + i;
        inputs[i] = at < last ? r->tokens[at] : 0;
        targets[i] = at < last && at + 1 >= r->context ? r->tokens[at + 1] : NO_TARGET;
    }
}
