/* finish.c - see formats_internal.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/config/train_config_check.h"
#include "runtime/config/train_encoder.h"
#include "trainer/formats/formats_internal.h"
#include "trainer/formats/stages.h"

enum { NUMBER_SIZE = 32, TRAINER_BATCH = 8 };

static bool is_given(const struct assign *a, const char *key)
{
    return assign_source(a, key) != KNOB_FROM_DEFAULT;
}

static int set_whole(struct assign *a, const char *key, double value, const char *place)
{
    char text[NUMBER_SIZE];
    (void)snprintf(text, sizeof text, "%.0f", value); /* fits */
    return assign_rule(a, key, text, place);
}

static int set_real(struct assign *a, const char *key, double value, const char *place)
{
    char text[NUMBER_SIZE];
    (void)snprintf(text, sizeof text, "%.17g", value); /* fits */
    return assign_rule(a, key, text, place);
}

/* ---- batches ---- */

/* Ranks with samples of their own: the stages of a pipeline have the same ones. */
static int sample_ranks(const struct assign *a)
{
    const int64_t stages = a->config->mesh_pipeline;
    return stages > 1 && stages <= a->world_size ? (int)(a->world_size / stages) : a->world_size;
}

static int say_batch(struct assign *a, const struct batch_sizes *given, const struct batch_sizes *taken)
{
    return assign_note(
        a,
        "%s: %lld micro-batches a step do not fit: a batch of %lld is %lld micro-batches of %lld "
        "on %d ranks, which is taken (training.strict_batch: true makes it an error)",
        a->numbers[ASSIGN_ACCUMULATION].place, (long long)given->accumulation, (long long)taken->total,
        (long long)taken->accumulation, (long long)taken->micro, sample_ranks(a));
}

/* The source of a size: the total's place, or else the micro-batch's, or else the accumulation's. */
static const char *batch_place(const struct assign *a)
{
    const char *total = assign_place(a, "training.global_batch");
    const char *micro = assign_place(a, "training.micro_batch");
    const char *accumulation = a->numbers[ASSIGN_ACCUMULATION].place;
    return *total ? total : *micro ? micro : accumulation ? accumulation : "the configuration";
}

/* GPipe's chunks: a rank's batch is cut into so many micro-batches. */
static int finish_chunks(struct assign *a, int64_t batch)
{
    const struct assign_number *chunks = &a->numbers[ASSIGN_CHUNKS];
    const int64_t count = chunks->place ? (int64_t)chunks->value : 1;
    if (!chunks->place || assign_overridden(a, "training.micro_batch"))
        return 0;
    if (batch % count)
        return error_set(a->err, MUSTER_E_INVALID, "%s: %lld chunks do not divide a rank's batch of %lld",
                         chunks->place, (long long)count, (long long)batch);
    return set_whole(a, "training.micro_batch", (double)(batch / count), chunks->place);
}

/* The default of a micro-batch gives way to a smaller part of the batch: no row would be empty for it. */
static int fit_default(struct assign *a)
{
    const int64_t ranks = sample_ranks(a), part = (a->config->global_batch + ranks - 1) / ranks;
    return part < a->config->micro_batch
               ? set_whole(a, "training.micro_batch", (double)part, "training.global_batch over the ranks")
               : 0;
}

static int finish_batch(struct assign *a)
{
    const struct assign_number *accumulation = &a->numbers[ASSIGN_ACCUMULATION];
    const bool total = is_given(a, "training.global_batch"), micro = is_given(a, "training.micro_batch");
    struct batch_sizes sizes = {total ? a->config->global_batch : 0, micro ? a->config->micro_batch : 0,
                                accumulation->place ? (int64_t)accumulation->value : 0};
    const struct batch_sizes given = sizes;
    bool changed;
    if (!a->wants_batch)
        return micro ? 0 : fit_default(a);
    if (a->trainer && !total && !micro)
        sizes.micro = TRAINER_BATCH;
    if (batch_complete(&sizes, sample_ranks(a), a->config->strict_batch, &changed, a->err) < 0)
        return error_wrap(a->err, "%s", batch_place(a));
    if (changed && say_batch(a, &given, &sizes) < 0)
        return -1;
    if (!total &&
        set_whole(a, "training.global_batch", (double)sizes.total, "micro-batch x accumulation x ranks") < 0)
        return -1;
    if (!micro && set_whole(a, "training.micro_batch", (double)sizes.micro,
                            given.total ? "batch / (accumulation x ranks)" : "the Trainer's default") < 0)
        return -1;
    return finish_chunks(a, sizes.micro);
}

/* ---- shares of other values ---- */

/* Turns a length in tokens into steps, unless steps are given too. */
static int finish_tokens(struct assign *a)
{
    if (!a->config->tokens || is_given(a, "training.steps"))
        return 0;
    return set_whole(a, "training.steps", (double)train_config_token_steps(a->config), "training.tokens");
}

static int finish_warmup(struct assign *a)
{
    const struct assign_number *ratio = &a->numbers[ASSIGN_WARMUP_RATIO];
    if (!ratio->place || is_given(a, "training.warmup_steps"))
        return 0;
    if (a->config->epochs > 0) /* the number of steps depends on the data */
        return set_real(a, "training.warmup_share", ratio->value, ratio->place);
    return set_whole(a, "training.warmup_steps", ceil(ratio->value * (double)a->config->steps), ratio->place);
}

/* Turns a share of all steps into a setting. With epochs the number of steps is unknown until the data are
 * counted. */
static int finish_every(struct assign *a, enum assign_number_kind kind, const char *every, const char *share,
                        const char *epochs)
{
    const struct assign_number *given = &a->numbers[kind];
    if (!given->place || assign_overridden(a, every) || assign_overridden(a, share) ||
        assign_overridden(a, epochs))
        return 0;
    if (given->value == ASSIGN_EACH_EPOCH)
        return assign_rule(a, epochs, "true", given->place);
    if (a->config->epochs > 0)
        return set_real(a, share, given->value, given->place);
    return set_whole(a, every, ceil(given->value * (double)a->config->steps), given->place);
}

static int finish_shares(struct assign *a)
{
    return finish_every(a, ASSIGN_EVALUATE_SHARE, "training.evaluate_every", "training.evaluate_share",
                        "training.evaluate_epochs") < 0 ||
                   finish_every(a, ASSIGN_CHECKPOINT_SHARE, "training.checkpoint_every",
                                "training.checkpoint_share", "training.checkpoint_epochs") < 0 ||
                   finish_every(a, ASSIGN_INTERVAL_SHARE, "logging.interval", "logging.interval_share",
                                "logging.interval_epochs") < 0
               ? -1
               : 0;
}

/* Turns a share of the learning rate into a setting. */
static int finish_rate(struct assign *a, enum assign_number_kind kind, const char *key)
{
    const struct assign_number *ratio = &a->numbers[kind];
    const enum knob_source source = assign_source(a, key); /* a default of another program gives way */
    if (!ratio->place || (source != KNOB_FROM_DEFAULT && source != KNOB_FROM_RULE) ||
        assign_overridden(a, key))
        return 0;
    return set_real(a, key, ratio->value * a->config->learning_rate, ratio->place);
}

/* Sets the length of the schedule, which may differ from the run's. */
static int finish_schedule(struct assign *a)
{
    const struct assign_number *steps = &a->numbers[ASSIGN_SCHEDULE_STEPS];
    if (!steps->place || is_given(a, "training.decay_steps"))
        return 0;
    const double left = steps->value - (double)a->config->warmup_steps;
    if (left < 1)
        return error_set(a->err, MUSTER_E_INVALID,
                         "%s: a schedule of %.0f steps is not longer than its warm-up of %lld", steps->place,
                         steps->value, (long long)a->config->warmup_steps);
    return set_whole(a, "training.decay_steps", left, steps->place);
}

/* DeepSpeed's stage 3 keeps parameters whole that have at most this many elements; "auto" is 10 x the width.
 */
static int finish_whole(struct assign *a)
{
    const struct assign_number *elements = &a->numbers[ASSIGN_WHOLE_ELEMENTS];
    const bool sharded =
        a->config->strategy == STRATEGY_FULL_SHARD || a->config->strategy == STRATEGY_HYBRID_SHARD;
    if (!elements->place || !sharded || is_given(a, "training.keep_whole_below"))
        return 0;
    if (elements->value < 0 && !train_config_gives_sizes(a->config))
        return 0; /* the files have the width */
    const double most = elements->value < 0 ? 10.0 * (double)a->config->channels : elements->value;
    const double size = train_config_dtype(a->config) == DTYPE_F32 ? 4 : 2;
    return most > 0 ? set_whole(a, "training.keep_whole_below", most * size + 1, elements->place) : 0;
}

/* MiCS is HYBRID_SHARD over this number of ranks. */
static int finish_mics(struct assign *a)
{
    const struct assign_number *ranks = &a->numbers[ASSIGN_SHARD_RANKS];
    if (!ranks->place || assign_overridden(a, "training.strategy"))
        return 0;
    if (a->world_size % (int)ranks->value)
        return error_set(a->err, MUSTER_E_INVALID, "%s: %d is no divisor of %d ranks", ranks->place,
                         (int)ranks->value, a->world_size);
    if (assign_rule(a, "training.strategy", "HYBRID_SHARD", ranks->place) < 0)
        return -1;
    return set_whole(a, "training.replicas", a->world_size / (int)ranks->value, ranks->place);
}

/* A model with sizes from the configuration gets as many positions as its longest sequence. */
static int finish_positions(struct assign *a)
{
    if (a->config->positions || !train_config_gives_sizes(a->config) ||
        train_config_reads_pictures(a->config))
        return 0;
    const int64_t longest = stages_positions(a->config, a->err);
    return longest < 0 ? -1 : set_whole(a, "model.positions", (double)longest, "training.sequence_length");
}

/* Without a length the Trainer makes three passes. */
static int finish_length(struct assign *a)
{
    if (!a->trainer || is_given(a, "training.steps") || is_given(a, "training.epochs") ||
        is_given(a, "training.tokens"))
        return 0;
    return assign_rule(a, "training.epochs", "3", "the Trainer's default");
}

/* A script writes the adapters alone. */
static int finish_adapters(struct assign *a)
{
    const bool weak = assign_source(a, "training.output_format") == KNOB_FROM_RULE;
    return a->adapts && weak && a->config->lora_rank > 0 && !a->config->lora_merge
               ? assign_rule(a, "training.output_format", "peft", "use_peft")
               : 0;
}

/* An encoder is written as the folder that it was read from. */
static int finish_encoder(struct assign *a)
{
    static const struct assign_pair usual[] = {{"training.output_format", "hf"},
                                               {"logging.sample_length", "0"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const bool idle = i == 0 && !(a->config->output && *a->config->output);
        if (!is_given(a, usual[i].key) && !assign_overridden(a, usual[i].key) && !idle &&
            assign_rule(a, usual[i].key, usual[i].text, "an encoder") < 0)
            return -1;
    }
    return 0;
}

/* A classifier is trained as its usual script does: torch.optim.Adam at one rate, no clipping, and model.pth
 * at the end. */
static int finish_classifier(struct assign *a)
{
    static const struct assign_pair usual[] = {
        {"training.sequence_length", "1"}, {"training.optimizer", "Adam"},
        {"training.schedule", "constant"}, {"training.warmup_steps", "0"},
        {"training.weight_decay", "0"},    {"training.beta2", "0.999"},
        {"training.clip_norm", "0"},       {"training.output", "model.pth"},
        {"training.output_format", "pth"}, {"logging.sample_length", "0"}};
    const bool pictures = train_config_reads_pictures(a->config);
    if (a->config->architecture == TRAIN_ARCHITECTURE_ENCODER)
        return finish_encoder(a);
    if (!pictures && !train_config_reads_labels(a->config))
        return 0;
    for (size_t i = pictures ? 0 : 1; i < sizeof usual / sizeof *usual; i++) {
        const bool idle =
            (!strcmp(usual[i].key, "training.beta2") && a->config->optimizer == OPTIMIZER_SGD) ||
            (!strcmp(usual[i].key, "training.output_format") && !(a->config->output && *a->config->output));
        if (!is_given(a, usual[i].key) && !assign_overridden(a, usual[i].key) && !idle &&
            assign_rule(a, usual[i].key, usual[i].text,
                        pictures ? "a classifier of pictures" : "a classifier of texts") < 0)
            return -1;
    }
    return 0;
}

int finish_settings(struct assign *assign)
{
    struct assign *a = assign;
    if (train_encoder_find(a->config, a->err) < 0)
        return -1;
    if (a->trainer && arguments_defaults(a) < 0)
        return -1;
    if (finish_length(a) < 0 || finish_batch(a) < 0 || finish_tokens(a) < 0 || finish_warmup(a) < 0 ||
        finish_shares(a) < 0 || finish_mics(a) < 0 || assign_take_weak(a) < 0)
        return -1;
    if (finish_rate(a, ASSIGN_MIN_RATIO, "training.min_learning_rate") < 0 ||
        finish_rate(a, ASSIGN_WARMUP_MIN_RATIO, "training.warmup_min_learning_rate") < 0 ||
        finish_schedule(a) < 0)
        return -1;
    return finish_whole(a) < 0 || finish_adapters(a) < 0 ? -1 : finish_classifier(a);
}

int finish_checked(struct assign *assign)
{
    return finish_positions(assign);
}

/* ---- batch sizes ---- */

enum { BATCH_MOST = 1000000000 }; /* most of each size; times a million ranks it fits in 64 bits */

static bool product(const struct batch_sizes *s, int ranks, int64_t *out)
{
    return !__builtin_mul_overflow(s->micro, s->accumulation, out) &&
           !__builtin_mul_overflow(*out, (int64_t)ranks, out);
}

static int refuse(const struct batch_sizes *s, int ranks, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID,
                     "train_batch_size %lld is not train_micro_batch_size_per_gpu %lld x "
                     "gradient_accumulation_steps %lld x %d ranks",
                     (long long)s->total, (long long)s->micro, (long long)s->accumulation, ranks);
}

static int check_given(const struct batch_sizes *s, struct muster_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } given[] = {{"train_batch_size", s->total},
                 {"train_micro_batch_size_per_gpu", s->micro},
                 {"gradient_accumulation_steps", s->accumulation}};
    for (int i = 0; i < 3; i++)
        if (given[i].value < 0 || given[i].value > BATCH_MOST)
            return error_set(err, MUSTER_E_INVALID, "%s %lld is outside 1 to %d", given[i].name,
                             (long long)given[i].value, BATCH_MOST);
    if (!s->total && !s->micro)
        return error_set(err, MUSTER_E_INVALID,
                         "neither train_batch_size nor train_micro_batch_size_per_gpu is given; give one of "
                         "the two");
    return 0;
}

int batch_complete(struct batch_sizes *sizes, int ranks, bool strict, bool *changed, struct muster_error *err)
{
    struct batch_sizes s = *sizes;
    *changed = false;
    if (check_given(&s, err) < 0)
        return -1;
    if (s.total && s.micro) {
        const int64_t at_once = s.micro * ranks;
        const int64_t given = s.accumulation;
        if (!strict)
            s.accumulation = (s.total + at_once - 1) / at_once;
        else if (!s.accumulation)
            s.accumulation = s.total / s.micro / ranks;
        *changed = given && given != s.accumulation;
    } else if (s.total) {
        s.accumulation = s.accumulation ? s.accumulation : 1;
        s.micro = s.total / ranks / s.accumulation;
    } else {
        s.accumulation = s.accumulation ? s.accumulation : 1;
        if (!product(&s, ranks, &s.total) || s.total > BATCH_MOST)
            return error_set(
                err, MUSTER_E_INVALID,
                "train_micro_batch_size_per_gpu %lld x gradient_accumulation_steps %lld x %d ranks "
                "is more than %d samples a step",
                (long long)s.micro, (long long)s.accumulation, ranks, BATCH_MOST);
    }
    /* a given micro-batch that does not divide runs with empty rows; a computed micro-batch must fit */
    const bool exact = strict || !sizes->micro;
    int64_t all;
    if (s.micro < 1 || s.accumulation < 1 || (exact && (!product(&s, ranks, &all) || s.total != all)))
        return refuse(&s, ranks, err);
    *sizes = s;
    return 0;
}
