/* generate.c - see generate.h. The context is the last max_positions tokens, recomputed for each token:
 * simple, and enough for the few hundred characters that a training run prints at its end. */
#include "runtime/train/generate.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t token_timeout_ns =
    60 * NS_PER_S; /* far beyond one forward pass: only a hang reaches it */

struct generator {
    const struct gpt *gpt;
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *stream;
    const struct kernels *kernels;
    const void *const *weights;
    void *work;
    float *logits, *scratch;
    int32_t *context; /* max_positions */
    int used;
};

static void run_forward(void *argument)
{
    struct generator *g = argument;
    gpt_logits(g->gpt, g->kernels, g->weights, g->context, (struct shape){1, g->used}, g->work, g->logits);
}

static void push(struct generator *g, int32_t token)
{
    int limit = g->gpt->config.max_positions;
    if (g->used == limit) {
        memmove(g->context, g->context + 1, (size_t)(limit - 1) * sizeof *g->context);
        g->used--;
    }
    g->context[g->used++] = token;
}

static int draw(struct generator *g, const struct generate_options *options, struct buffer *out,
                struct muster_error *err)
{
    for (int64_t i = 0; i < options->length; i++) {
        if (g->ops->launch(g->stream, run_forward, g) < 0)
            return g->ops->poll_error(g->device, err) < 0
                       ? -1
                       : error_set(err, MUSTER_E_STATE, "the compute stream is closed");
        if (g->ops->sync(g->stream, instant_add(clock_now(NULL), token_timeout_ns), err) < 0)
            return -1;
        int token = sample_token(&options->sample, g->logits, GENERATE_BYTES, (uint64_t)i, g->scratch);
        char byte = (char)token;
        if (buffer_append(out, &byte, 1) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the sample");
        push(g, token);
    }
    return 0;
}

static int open_generator(struct generator *g, int threads, struct muster_error *err)
{
    const struct gpt_config *config = &g->gpt->config;
    if (config->vocab < GENERATE_BYTES)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "sampling reads tokens as bytes and needs a vocabulary of at least %d, not %d",
                         GENERATE_BYTES, config->vocab);
    g->device = g->ops->open(0, threads, err);
    if (!g->device)
        return -1;
    g->kernels = g->ops->kernels(g->device);
    g->stream = g->ops->stream_create(g->device, "generate", true, err);
    if (!g->stream)
        return -1;
    g->work =
        mem_calloc((size_t)gpt_logits_work(g->gpt, g->kernels, (struct shape){1, config->max_positions}), 1);
    g->logits = mem_calloc((size_t)config->vocab, sizeof *g->logits);
    g->scratch = mem_calloc(GENERATE_BYTES, sizeof *g->scratch);
    g->context = mem_calloc((size_t)config->max_positions, sizeof *g->context);
    if (!g->work || !g->logits || !g->scratch || !g->context)
        return error_set(err, MUSTER_E_NOMEM, "no memory to sample from the model");
    return 0;
}

static void close_generator(struct generator *g)
{
    if (g->device) {
        g->ops->stream_destroy(g->stream);
        g->ops->close(g->device);
    }
    mem_free(g->work);
    mem_free(g->logits);
    mem_free(g->scratch);
    mem_free(g->context);
}

int generate_text(const struct gpt *gpt, const struct device_ops *ops, const void *const *weights,
                  const struct generate_options *options, struct buffer *out, struct muster_error *err)
{
    struct generator g = {.gpt = gpt, .ops = ops, .weights = weights};
    int result = open_generator(&g, options->threads, err);
    if (!result) {
        const char *prompt = options->prompt && *options->prompt ? options->prompt : "\n";
        for (; *prompt; prompt++)
            push(&g, (unsigned char)*prompt);
        result = draw(&g, options, out, err);
    }
    close_generator(&g);
    return result;
}
