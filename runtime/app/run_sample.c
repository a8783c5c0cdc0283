/* run_sample.c - the sample of text at the end. See run.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/app/run.h"

enum { BYTES = 256 }; /* tokens that are bytes */

/* The prompt's bytes as tokens; an empty one is a newline. */
static int32_t *prompt_tokens(const struct run *run, int64_t *count)
{
    const char *prompt = run->config.sample_prompt;
    if (!prompt || !*prompt)
        prompt = "\n";
    *count = (int64_t)strlen(prompt);
    int32_t *tokens = mem_calloc((size_t)*count, sizeof *tokens);
    for (int64_t i = 0; tokens && i < *count; i++)
        tokens[i] = (unsigned char)prompt[i];
    return tokens;
}

int run_sample(const struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    int64_t prompt_count;
    scope_free int32_t *prompt = prompt_tokens(run, &prompt_count);
    scope_free int32_t *tokens = mem_calloc((size_t)c->sample_length, sizeof *tokens);
    if (!prompt || !tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    if (muster_trainer_generate(run->trainer, prompt, prompt_count, c->sample_temperature, (uint64_t)c->seed,
                                BYTES, tokens, c->sample_length, err) < 0)
        return -1;
    if (run->rank)
        return 0;
    scope_free char *text = mem_calloc((size_t)c->sample_length + 1, 1);
    if (!text)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    for (int64_t i = 0; i < c->sample_length; i++)
        text[i] = (char)tokens[i];
    text[c->sample_length] = '\n';
    printf("sample:\n");
    (void)fwrite(text, 1, (size_t)c->sample_length + 1,
                 stdout); /* an error stays in the stream, for the end */
    run_log_sample(run, text, (size_t)c->sample_length + 1);
    return fflush(stdout) ? error_errno(err, "cannot print the sample") : 0;
}
