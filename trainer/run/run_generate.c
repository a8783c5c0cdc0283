/* run_generate.c - muster-train generate: text drawn from a checkpoint or a model, behind a prompt. See
 * run.h.
 *
 * Rank 0 has the prompt, draws and prints; the others hold their parts of the parameters. */
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "runtime/config/train_settings.h"
#include "trainer/run/run.h"

enum { TOKENS = 100, PROMPT_LIMIT = 64 << 20 };

/* No data are read. */
int run_generate_settings(const struct train_config *config, struct muster_error *err)
{
    if (train_config_reads_pictures(config) || train_config_reads_labels(config))
        return error_set(
            err, MUSTER_E_INVALID,
            "model.architecture is a model of %s, which draws no text: `muster-train eval` shows "
            "its loss and accuracy",
            train_config_reads_pictures(config) ? "pictures" : "labelled texts");
    return train_config_check("", config, TRAIN_MODEL | TRAIN_TRAINING, err);
}

static int set_one(struct train_config *c, const char *key, struct muster_error *err)
{
    const struct knob *knob = knob_find(train_config_table(), key, strlen(key), false, NULL);
    return knob_set(train_config_table(), c, c->sources, knob, "1", KNOB_FROM_RULE, key, err);
}

/* The model is the configuration's; of its step nothing is wanted, and its activations would only take
 * memory. */
static int open_model(struct run *run, struct muster_error *err)
{
    struct train_config *c = &run->config;
    if (run_open_model(run, err) < 0 || set_one(c, "training.micro_batch", err) < 0 ||
        set_one(c, "training.global_batch", err) < 0 || set_one(c, "training.sequence_length", err) < 0)
        return -1;
    train_settings_free(run->settings);
    run->settings = train_settings_texts(c, "training");
    return run->settings ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the settings");
}

static int open_inputs(struct run *run, struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = run_tokenizer_open(run, err);
    return tokenizer ? open_model(run, err) : -1;
}

/* ---- the prompt ---- */

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

/* An empty one is the token that begins a text, or ends the one before. */
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

/* ---- the result ---- */

struct drawn {
    const struct token_list *prompt;
    const int32_t *tokens;
    int64_t count;
    bool ended; /* by the tokenizer's end of text, which is the last token and not part of the text */
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
                        d->ended ? "true" : "false", (long long)muster_trainer_state_now(run->trainer).steps,
                        d->seconds, (double)d->count / d->seconds);
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
        if (isatty(fileno(to)))
            (void)buffer_printable(&out, text.data, text.length);
        else
            (void)buffer_append(&out, text.data, text.length);
        (void)buffer_text(&out, "\n");
    }
    if (out.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text");
    return fwrite(out.data, 1, out.length, to) < out.length || fflush(to)
               ? error_errno(err, "cannot print the text")
               : 0;
}

/* ---- drawing ---- */

static struct muster_sampling sampling_of(const struct run *run, const struct command_draw *draw, int32_t end)
{
    return (struct muster_sampling){
        .size = sizeof(struct muster_sampling),
        .top_k = (int32_t)draw->top_k,
        .top_p = draw->top_p,
        .temperature = draw->has_temperature ? draw->temperature : 1,
        .seed = (uint64_t)(draw->has_seed ? draw->seed : run->config.seed),
        .limit = (int32_t)run->tokenizer.vocabulary,
        .end = end,
    };
}

static int draw_text(struct run *run, const struct command_draw *draw, bool json, FILE *out,
                     struct muster_error *err)
{
    const int64_t most = draw->tokens ? draw->tokens : TOKENS;
    scope_token_list prompt = {0};
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(run->tokenizer.name, err);
    scope_free int32_t *tokens = mem_calloc((size_t)most, sizeof *tokens);
    int failed = tokenizer ? 0 : -1;
    if (!failed && !tokens)
        failed = error_set(err, MUSTER_E_NOMEM, "no memory for %lld tokens", (long long)most);
    if (!failed && !run->rank)
        failed = prompt_tokens(tokenizer, draw->prompt, &prompt, err);
    if (muster_world_agree(run->world, failed, err) < 0)
        return -1;
    const struct muster_sampling sampling = sampling_of(run, draw, tokenizer_special(tokenizer).eos);
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

int run_generate(struct run *run, const struct command_draw *draw, bool json, struct muster_error *err)
{
    FILE *out = run_take_output(err); /* the text alone */
    if (!out)
        return -1;
    int result = run_restore(run, open_inputs, err);
    if (!result && run->config.ema_export) /* what an export would have */
        result = muster_trainer_average(run->trainer, 1, err);
    if (!result && !(result = muster_heartbeat(-1, err)))
        result = draw_text(run, draw, json, out, err);
    (void)fclose(out); /* it was flushed */
    return result;
}
