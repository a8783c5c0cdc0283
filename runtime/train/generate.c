/* generate.c - see generate.h. The context is that of the last tokens, recomputed for each token:
 * simple, and enough for the few hundred characters that a training run prints at its end. */
#include "runtime/train/generate.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/model/logits.h"

static const int64_t token_timeout_ns =
    60 * NS_PER_S; /* far beyond one forward pass: only a hang reaches it */

struct generator {
    const struct model *model;
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *stream;
    const struct kernels *kernels;
    const void *const *weights;
    void *work;
    float *logits, *scratch;
    int32_t *context;
    int used, limit;
};

static void run_forward(void *argument)
{
    struct generator *g = argument;
    model_logits(g->model, g->kernels, g->weights, g->context, (struct shape){1, g->used}, g->work,
                 g->logits);
}

static void push(struct generator *g, int32_t token)
{
    if (g->used == g->limit) {
        memmove(g->context, g->context + 1, (size_t)(g->limit - 1) * sizeof *g->context);
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
    int64_t vocabulary = model_vocabulary(g->model);
    if (!vocabulary)
        return error_set(err, MUSTER_E_UNSUPPORTED, "model %s cannot be sampled from", g->model->name);
    if (vocabulary < GENERATE_BYTES)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "sampling reads tokens as bytes and needs a vocabulary of at least %d, not %lld",
                         GENERATE_BYTES, (long long)vocabulary);
    g->limit = g->model->max_positions ? g->model->max_positions : GENERATE_CONTEXT;
    g->device = g->ops->open(0, threads, err);
    if (!g->device)
        return -1;
    g->kernels = g->ops->kernels(g->device);
    g->stream = g->ops->stream_create(g->device, "generate", true, err);
    if (!g->stream)
        return -1;
    g->work = mem_calloc((size_t)model_logits_work(g->model, g->kernels, (struct shape){1, g->limit}), 1);
    g->logits = mem_calloc((size_t)vocabulary, sizeof *g->logits);
    g->scratch = mem_calloc(GENERATE_BYTES, sizeof *g->scratch);
    g->context = mem_calloc((size_t)g->limit, sizeof *g->context);
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

int generate_text(const struct model *model, const struct device_ops *ops, const void *const *weights,
                  const struct generate_options *options, struct buffer *out, struct muster_error *err)
{
    struct generator g = {.model = model, .ops = ops, .weights = weights};
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
