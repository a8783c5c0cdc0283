/* generate.c - text drawn from a model: the sample at the end of a training, and muster-train generate. See
 * run.h and results.h.
 *
 * Rank 0 has the prompt, draws and prints; the others hold their parts of the parameters. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "trainer/run/command/command.h"
#include "trainer/run/inputs.h"
#include "trainer/run/observers.h"
#include "trainer/run/results.h"

enum { TOKENS = 100, PROMPT_LIMIT = 64 << 20 };

/* ---- the sample ---- */

/* The prompt's tokens; an empty prompt is a newline. */
static int sample_prompt(const struct run *run, struct tokenizer *tokenizer, struct token_list *out,
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
    scope_buffer shown = {0};
    if (buffer_text(&text, "\n") < 0 || console_text(stdout, &text, &shown) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    printf("sample:\n");
    (void)fwrite(shown.data, 1, shown.length, stdout); /* an error stays in the stream, for the end */
    log_sample(run, text.data, text.length);
    return fflush(stdout) ? error_errno(err, "cannot print the sample") : 0;
}

int run_sample(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    scope_token_list prompt = {0};
    int32_t vocabulary;
    if (!inputs_have_text(run->inputs)) {
        if (run->rank == 0)
            printf("no sample: the data are token shards; data.tokenizer names what they were made with\n");
        return 0;
    }
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = inputs_tokenizer(run->inputs, &vocabulary, err);
    if (!tokenizer)
        return -1;
    scope_free int32_t *tokens = mem_calloc((size_t)c->sample_length, sizeof *tokens);
    if (!tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
    if (sample_prompt(run, tokenizer, &prompt, err) < 0 ||
        muster_trainer_generate(run->trainer, prompt.tokens, (int64_t)prompt.count, c->sample_temperature,
                                (uint64_t)c->seed, vocabulary, tokens, c->sample_length, err) < 0)
        return -1;
    return run->rank ? 0 : print_sample(run, tokenizer, tokens, err);
}

/* ---- muster-train generate ---- */

/* No data are read. */
int generate_settings(const struct train_config *config, struct muster_error *err)
{
    if (train_config_reads_pictures(config) || train_config_reads_labels(config))
        return error_set(
            err, MUSTER_E_INVALID,
            "model.architecture is a model of %s, which draws no text: `muster-train eval` shows "
            "its loss and accuracy",
            train_config_reads_pictures(config) ? "pictures" : "labelled texts");
    return train_config_check("", config, TRAIN_MODEL | TRAIN_TRAINING, err);
}

/* The model is the configuration's. No step is taken, whose activations would only take memory. No data are
 * read. */
static int open_inputs(struct run *run, struct muster_error *err)
{
    struct train_config *c = &run->config;
    run->inputs = inputs_open_tokenizer(c, err);
    return !run->inputs || run_open_model(run, err) < 0 || run_set(c, "training.micro_batch", "1", err) < 0 ||
                   run_set(c, "training.global_batch", "1", err) < 0
               ? -1
               : run_set(c, "training.sequence_length", "1", err);
}

static int read_prompt(struct buffer *text, struct muster_error *err)
{
    char block[1 << 14];
    size_t got;
    while ((got = fread(block, 1, sizeof block, stdin))) {
        if (text->length + got > PROMPT_LIMIT)
            return error_set(err, MUSTER_E_LIMIT, "the prompt is longer than %d bytes", PROMPT_LIMIT);
        (void)buffer_append(text, block, got);
    }
    if (ferror(stdin))
        return error_errno(err, "cannot read the prompt from standard input");
    return text->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the prompt") : 0;
}

/* An empty prompt is the token that begins a text, or ends the text before. */
static int prompt_tokens(struct tokenizer *tokenizer, const char *given, struct token_list *out,
                         struct muster_error *err)
{
    const struct tokenizer_special special = tokenizer_special(tokenizer);
    scope_buffer text = {0};
    if (!given && read_prompt(&text, err) < 0)
        return -1;
    const char *prompt = given ? given : text.length ? text.data : "";
    const size_t length = given ? strlen(given) : text.length;
    if (length && tokenizer_encode(tokenizer, prompt, length, out, err) < 0)
        return -1;
    if (out->count)
        return 0;
    const int32_t first = special.bos >= 0 ? special.bos : special.eos;
    if (first < 0)
        return error_set(err, MUSTER_E_INVALID,
                         "the prompt has no token, and the tokenizer (%s) has none that begins a text: give "
                         "--prompt or standard input",
                         tokenizer_kind(tokenizer));
    token_list_add(out, &first, 1);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the prompt") : 0;
}

struct drawn {
    const struct token_list *prompt;
    const int32_t *tokens;
    int64_t count;
    bool ended; /* by the tokenizer's end of text: the last token, which is no part of the text */
    double seconds;
};

static void json_tokens(struct buffer *out, const char *name, const int32_t *tokens, int64_t count)
{
    (void)buffer_printf(out, "\"%s\": [", name);
    for (int64_t i = 0; i < count; i++)
        (void)buffer_printf(out, i ? ", %d" : "%d", tokens[i]);
    (void)buffer_text(out, "], ");
}

static void drawn_json(const struct run *run, const struct drawn *d, const struct buffer *text,
                       struct buffer *out)
{
    (void)buffer_text(out, "{\"text\": ");
    (void)buffer_json_bytes(out, text->data, text->length);
    (void)buffer_text(out, ", ");
    json_tokens(out, "prompt_tokens", d->prompt->tokens, (int64_t)d->prompt->count);
    json_tokens(out, "tokens", d->tokens, d->count);
    (void)buffer_printf(out, "\"ended\": %s, \"step\": %lld, \"seconds\": %.6f, \"tokens_per_s\": %.2f}\n",
                        d->ended ? "true" : "false", (long long)run_state(run).steps, d->seconds,
                        (double)d->count / d->seconds);
}

static int print_drawn(const struct run *run, struct tokenizer *tokenizer, const struct drawn *d, bool json,
                       FILE *to, struct muster_error *err)
{
    scope_buffer text = {0}, out = {0};
    if (tokenizer_decode(tokenizer, d->tokens, (size_t)(d->count - d->ended), &text, err) < 0)
        return -1;
    if (json) {
        drawn_json(run, d, &text, &out);
    } else {
        (void)console_text(to, &text, &out);
        (void)buffer_text(&out, "\n");
    }
    if (out.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text");
    return fwrite(out.data, 1, out.length, to) < out.length || fflush(to)
               ? error_errno(err, "cannot print the text")
               : 0;
}

/* ---- drawing ---- */

static struct muster_sampling sampling_of(const struct run *run, const struct command_draw *draw,
                                          int32_t vocabulary, int32_t end)
{
    return (struct muster_sampling){
        .size = sizeof(struct muster_sampling),
        .top_k = (int32_t)draw->top_k,
        .top_p = draw->top_p,
        .temperature = draw->has_temperature ? draw->temperature : 1,
        .seed = (uint64_t)(draw->has_seed ? draw->seed : run->config.seed),
        .limit = vocabulary,
        .end = end,
    };
}

static int draw_text(struct run *run, const struct command_draw *draw, bool json, FILE *out,
                     struct muster_error *err)
{
    const int64_t most = draw->tokens ? draw->tokens : TOKENS;
    scope_token_list prompt = {0};
    int32_t vocabulary;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = inputs_tokenizer(run->inputs, &vocabulary, err);
    scope_free int32_t *tokens = mem_calloc((size_t)most, sizeof *tokens);
    int failed = tokenizer ? 0 : -1;
    if (!failed && !tokens)
        failed = error_set(err, MUSTER_E_NOMEM, "no memory for %lld tokens", (long long)most);
    if (!failed && !run->rank)
        failed = prompt_tokens(tokenizer, draw->prompt, &prompt, err);
    if (muster_world_agree(run->world, failed, err) < 0)
        return -1;
    const struct muster_sampling sampling =
        sampling_of(run, draw, vocabulary, tokenizer_special(tokenizer).eos);
    const struct instant begun = clock_now(NULL);
    const int64_t count = muster_trainer_sample(run->trainer, prompt.tokens, (int64_t)prompt.count, &sampling,
                                                tokens, most, err);
    if (count < 0 || run->rank)
        return count < 0 ? -1 : 0;
    const struct drawn drawn = {.prompt = &prompt,
                                .tokens = tokens,
                                .count = count,
                                .ended = count && sampling.end >= 0 && tokens[count - 1] == sampling.end,
                                .seconds =
                                    (double)instant_diff_ns(clock_now(NULL), begun) / (double)NS_PER_S};
    return print_drawn(run, tokenizer, &drawn, json, out, err);
}

int generate_run(struct run *run, const struct restore_source *source, const struct command_draw *draw,
                 bool json, struct muster_error *err)
{
    FILE *out = console_take_output(err); /* the text alone */
    if (!out)
        return -1;
    int result = restore_run(run, source, open_inputs, err);
    if (!result && run->config.ema_export) /* as in an export */
        result = muster_trainer_average(run->trainer, 1, err);
    if (!result && !(result = muster_heartbeat(-1, err)))
        result = draw_text(run, draw, json, out, err);
    (void)fclose(out); /* it was flushed */
    return result;
}
