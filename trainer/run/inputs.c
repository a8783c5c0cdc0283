/* inputs.c - see inputs.h: the kind of samples that the settings name, and their batches. */
#include "trainer/run/inputs.h"

#include <math.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/config/train_config_check.h"
#include "trainer/run/inputs_internal.h"

static void inputs_destroy(struct inputs *inputs)
{
    if (!inputs)
        return;
    next_batch_destroy(inputs->next); /* before the samples that its thread reads */
    if (inputs->kind)
        inputs->kind->close(inputs->set);
    mem_free(inputs->tokenizer_name);
    mem_free(inputs->tokenizer_path);
    mem_free(inputs);
}

GUARD_DEFINE(inputs, struct inputs *, inputs_destroy);

void inputs_close(struct inputs **inputs)
{
    inputs_destroy(*inputs);
    *inputs = NULL;
}

/* training.epochs of so many samples as training.steps. */
static int count_steps(struct train_config *c, int64_t samples, struct muster_error *err)
{
    train_config_set_epoch(c, samples);
    if (!(c->epochs > 0))
        return 0;
    const double steps = ceil(c->epochs * (double)samples / (double)c->global_batch);
    if (steps > 1e9)
        return error_set(err, MUSTER_E_LIMIT, "training.epochs %g of %lld samples are %g steps; at most 1e9",
                         c->epochs, (long long)samples, steps);
    train_config_set_steps(c, steps < 1 ? 1 : (int64_t)steps);
    return train_config_check("", c, TRAIN_TRAINING, err); /* settings that depend on the steps */
}

static struct inputs *inputs_create(struct muster_error *err)
{
    struct inputs *inputs = mem_calloc(1, sizeof *inputs);
    if (!inputs)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the inputs");
    return inputs;
}

struct inputs *inputs_open(struct train_config *config, int rank, struct muster_error *err)
{
    GUARD(guard_inputs) struct inputs *inputs = inputs_create(err);
    if (!inputs)
        return NULL;
    inputs->kind = train_config_reads_pictures(config) ? &input_pictures
                   : train_config_reads_labels(config) ? &input_labelled
                                                       : &input_texts;
    return inputs->kind->open(inputs, config, rank, err) < 0 ||
                   count_steps(config, inputs->source.samples, err) < 0
               ? NULL
               : take_pointer(&inputs);
}

struct inputs *inputs_open_tokenizer(const struct train_config *config, struct muster_error *err)
{
    GUARD(guard_inputs) struct inputs *inputs = inputs_create(err);
    GUARD(guard_tokenizer)
    struct tokenizer *tokenizer = inputs ? inputs_find_tokenizer(inputs, config, err) : NULL;
    return tokenizer ? take_pointer(&inputs) : NULL;
}

struct batch_source inputs_source(const struct inputs *inputs)
{
    return inputs->source;
}

struct batch_source inputs_held_out(const struct inputs *inputs)
{
    return inputs->held;
}

const char *inputs_identity(const struct inputs *inputs)
{
    return inputs->identity;
}

bool inputs_classify(const struct inputs *inputs)
{
    return inputs->kind && inputs->kind->classifies;
}

const char *inputs_unit(const struct inputs *inputs)
{
    return inputs->kind ? inputs->kind->unit : input_texts.unit;
}

bool inputs_vary(const struct inputs *inputs)
{
    return inputs->kind && inputs->kind->varies;
}

double inputs_padding(const struct inputs *inputs)
{
    return inputs->padding;
}

int inputs_begin(struct inputs *inputs, const struct train_batch *batch, struct muster_error *err)
{
    inputs->next = next_batch_create(&(struct next_batch_options){inputs->source, *batch}, err);
    return inputs->next ? 0 : -1;
}

int inputs_take(struct inputs *inputs, int64_t first, struct step_batch *out, int64_t *waited_ns,
                struct muster_error *err)
{
    const int64_t before = next_batch_waited_ns(inputs->next);
    const int result = next_batch_take(inputs->next, first, out, err);
    *waited_ns = next_batch_waited_ns(inputs->next) - before;
    return result;
}

bool inputs_have_text(const struct inputs *inputs)
{
    return inputs->tokenizer_path || (inputs->kind == &input_texts && data_has_text(inputs->set));
}

struct tokenizer *inputs_tokenizer(const struct inputs *inputs, int32_t *vocabulary, struct muster_error *err)
{
    if (vocabulary)
        *vocabulary = (int32_t)inputs->vocabulary;
    return tokenizer_open(inputs->tokenizer_name, err);
}

int inputs_copy_tokenizer(const struct inputs *inputs, const char *folder, struct muster_error *err)
{
    if (inputs->kind == &input_pictures || !inputs->tokenizer_path)
        return 0; /* the tokenizer of bytes has no files */
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(inputs->tokenizer_name, err);
    return tokenizer ? tokenizer_copy(tokenizer, folder, err) : -1;
}

void inputs_show(const struct inputs *inputs, const struct train_config *config,
                 const struct muster_trainer *trainer)
{
    inputs->kind->show(inputs, config, trainer);
}

int inputs_info(const struct inputs *inputs, struct buffer *out)
{
    return inputs->kind->info(inputs, out);
}
