/* run_sample.c - the sample of text at the end. See run.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/run/run.h"

/* The prompt's tokens; an empty one is a newline. */
static int prompt_tokens(const struct run *run, struct tokenizer *tokenizer, struct token_list *out,
                         struct muster_error *err)
{
    const char *prompt = run->config.sample_prompt;
    if (!prompt || !*prompt)
        prompt = "\n";
    if (tokenizer_encode(tokenizer, prompt, strlen(prompt), out, err) < 0)
        return -1;
    if (out->count == 0)
        return error_set(err, MUSTER_E_INVALID, "logging.sample_prompt '%s' has no token", prompt);
    return 0;
}

static int print_sample(const struct run *run, struct tokenizer *tokenizer, const int32_t *tokens,
                        struct muster_error *err)
{
    scope_buffer text = {0};
    if (tokenizer_decode(tokenizer, tokens, (size_t)run->config.sample_length, &text, err) < 0)
        return -1;
    scope_buffer shown = {0}; /* a model that has learned little draws control characters */
    if (buffer_text(&text, "\n") < 0 ||
        (run->terminal && buffer_printable(&shown, text.data, text.length) < 0))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    const struct buffer *printed = run->terminal ? &shown : &text;
    printf("sample:\n");
    (void)fwrite(printed->data, 1, printed->length, stdout); /* an error stays in the stream, for the end */
    run_log_sample(run, text.data, text.length);
    return fflush(stdout) ? error_errno(err, "cannot print the sample") : 0;
}

int run_sample(const struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    scope_token_list prompt = {0};
    if (!data_has_text(run->data) && !run->tokenizer.path) {
        if (run->rank == 0)
            printf("no sample: the data are token shards; data.tokenizer names what they were made with\n");
        return 0;
    }
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(run->tokenizer.name, err);
    if (!tokenizer)
        return -1;
    scope_free int32_t *tokens = mem_calloc((size_t)c->sample_length, sizeof *tokens);
    if (!tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    if (prompt_tokens(run, tokenizer, &prompt, err) < 0 ||
        muster_trainer_generate(run->trainer, prompt.tokens, (int64_t)prompt.count, c->sample_temperature,
                                (uint64_t)c->seed, run->tokenizer.vocabulary, tokens, c->sample_length,
                                err) < 0)
        return -1;
    return run->rank ? 0 : print_sample(run, tokenizer, tokens, err);
}
