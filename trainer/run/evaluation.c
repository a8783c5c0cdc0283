/* evaluation.c - evaluations of a run: when, over which samples of each rank, and the figures of classes. See
 * evaluation.h.
 *
 * Blocks of a micro-batch's samples are dealt to the ranks in turn. A block is the same in every world, and
 * only the order of the last sum depends on the world. */
#include "trainer/run/evaluation.h"

#include <math.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/run/inputs.h"
#include "trainer/run/stop.h"

/* Samples in memory, unless a micro-batch has more. The ranks meet after them, and then the stages of a
 * pipeline wait: they get more micro-batches, in at most so many bytes. */
enum { ROWS_AT_ONCE = 64, PASSES_OF_A_STAGE = 64, BYTES_AT_ONCE = 64 << 20 };

/* Counts of one class in an evaluation. */
struct class_rows {
    double actual, predicted, correct;
};

struct evaluation {
    struct evaluation_figures last;
    struct batch_source source;
    int64_t passes_at_once;            /* micro-batches whose samples are in memory */
    void *arrays[BATCH_SOURCE_ARRAYS]; /* memory of these samples */
    struct class_rows *classes;        /* NULL: the samples have no classes */
};

static int64_t passes_at_once(const struct train_config *c, const struct batch_source *source)
{
    int64_t bytes = 1, passes = c->micro_batch < ROWS_AT_ONCE ? ROWS_AT_ONCE / c->micro_batch : 1;
    for (int i = 0; i < source->arrays; i++)
        bytes += c->micro_batch * (int64_t)source->bytes[i];
    const int64_t wanted = c->mesh_pipeline > 1 ? c->mesh_pipeline * PASSES_OF_A_STAGE : 0,
                  most = BYTES_AT_ONCE / bytes;
    const int64_t more = wanted < most ? wanted : most;
    return more > passes ? more : passes;
}

int evaluation_open(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    struct evaluation *e = run->evaluation = mem_calloc(1, sizeof *e);
    if (!e)
        return error_set(err, MUSTER_E_NOMEM, "no memory for evaluations");
    e->source = inputs_held_out(run->inputs);
    const int64_t most = e->source.samples, wanted = c->evaluate_samples;
    if (!most && (c->evaluate_every || c->evaluate_at_start))
        return error_set(err, MUSTER_E_INVALID,
                         "%s is set, and no samples are held out to evaluate: set data.validation_share or "
                         "data.validation_path",
                         c->evaluate_every ? "training.evaluate_every" : "training.evaluate_at_start");
    if (!most)
        return 0;
    e->last.samples = wanted && wanted < most ? wanted : most;
    e->passes_at_once = passes_at_once(c, &e->source);
    const size_t samples = (size_t)(e->passes_at_once * c->micro_batch);
    return batch_source_reserve(&e->source, samples, e->arrays)
               ? 0
               : error_set(err, MUSTER_E_NOMEM, "no memory to evaluate %zu samples at once", samples);
}

void evaluation_close(struct run *run)
{
    struct evaluation *e = run->evaluation;
    if (!e)
        return;
    for (int i = 0; i < BATCH_SOURCE_ARRAYS; i++)
        mem_free(e->arrays[i]);
    mem_free(e->classes);
    mem_free(e);
    run->evaluation = NULL;
}

const struct evaluation_figures *evaluation_last(const struct run *run)
{
    return &run->evaluation->last;
}

/* ---- classes ---- */

static int count_of_classes(const struct run *run)
{
    return inputs_classify(run->inputs) ? train_config_classes(&run->config) : 0;
}

static int begin_classes(struct run *run, struct muster_error *err)
{
    struct evaluation *e = run->evaluation;
    const int count = count_of_classes(run);
    mem_free(e->classes);
    e->classes = count ? mem_calloc((size_t)count, sizeof *e->classes) : NULL;
    return count && !e->classes ? error_set(err, MUSTER_E_NOMEM, "no memory for an evaluation") : 0;
}

/* After each call of muster_trainer_evaluate. */
static int add_classes(struct run *run, struct muster_error *err)
{
    for (int i = 0; i < count_of_classes(run); i++) {
        double rows[3];
        if (muster_trainer_evaluated_class(run->trainer, i, rows, err) < 0)
            return -1;
        struct class_rows *c = &run->evaluation->classes[i];
        c->actual += rows[0];
        c->predicted += rows[1];
        c->correct += rows[2];
    }
    return 0;
}

/* 0 where both are 0. */
static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* Two classes: the figures of the second one, "positive". More classes: the means over the classes that occur
 * or were predicted. */
static void end_classes(struct run *run)
{
    const struct evaluation *e = run->evaluation;
    struct evaluation_figures *f = &run->evaluation->last;
    const int classes = count_of_classes(run);
    double rows = 0, correct = 0, counted = 0;
    f->precision = f->recall = f->f1 = 0;
    for (int i = 0; i < classes; i++) {
        const struct class_rows *c = &e->classes[i];
        rows += c->actual;
        correct += c->correct;
        if (!(c->actual + c->predicted > 0) || (classes == 2 && i == 0))
            continue;
        f->precision += share(c->correct, c->predicted);
        f->recall += share(c->correct, c->actual);
        f->f1 += share(2 * c->correct, c->predicted + c->actual);
        counted++;
    }
    f->accuracy = classes ? 100 * share(correct, rows) : NAN;
    f->precision = share(f->precision, counted);
    f->recall = share(f->recall, counted);
    f->f1 = share(f->f1, counted);
}

/* ---- an evaluation ---- */

static bool is_due(const struct run *run, int64_t step)
{
    const struct train_config *c = &run->config;
    const int64_t here = step - run->progress.first; /* a stage evaluates as a run of its own would */
    if (!run->evaluation->last.samples || run_state(run).evaluated_step == step)
        return false;
    return (here == 0 && c->evaluate_at_start) || (here == c->steps && c->evaluate_at_end) ||
           (here && c->evaluate_every && here % c->evaluate_every == 0);
}

/* This rank's samples of so many passes from `pass` on; -1. */
static int64_t read_rows(struct run *run, int64_t pass, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    const struct evaluation *e = run->evaluation;
    const int64_t B = c->micro_batch;
    const struct train_batch batch = train_config_batch(&run->config, run->rank, run->world_size);
    int64_t rows = 0;
    for (int64_t p = pass; p < pass + e->passes_at_once; p++) {
        const int64_t block = p * batch.ranks + batch.rank;
        for (int64_t sample = block * B; sample < (block + 1) * B && sample < e->last.samples;
             sample++, rows++)
            if (batch_source_read(&e->source, (uint64_t)sample, e->arrays, rows, err) < 0)
                return -1;
    }
    return rows;
}

/* Sums over all samples and ranks: losses, targets that count. */
static int sum_all(struct run *run, double sums[2], struct muster_error *err)
{
    const struct evaluation *e = run->evaluation;
    const struct train_batch batch = train_config_batch(&run->config, run->rank, run->world_size);
    const int64_t at_once = e->passes_at_once * run->config.micro_batch * batch.ranks;
    sums[0] = sums[1] = 0;
    if (begin_classes(run, err) < 0)
        return -1;
    for (int64_t first = 0, pass = 0; first < e->last.samples; first += at_once, pass += e->passes_at_once) {
        struct muster_error unread = {0};
        double part[2];
        const int64_t rows = read_rows(run, pass, &unread); /* -1 is an error on every rank */
        const void *arrays[BATCH_SOURCE_ARRAYS];
        for (int i = 0; i < BATCH_SOURCE_ARRAYS; i++)
            arrays[i] = e->arrays[i];
        if (muster_trainer_evaluate(run->trainer, arrays, rows, part, err) < 0) {
            if (unread.code)
                *err = unread;
            return -1;
        }
        sums[0] += part[0];
        sums[1] += part[1];
        if (add_classes(run, err) < 0)
            return -1;
    }
    end_classes(run);
    return sums[1] > 0 ? 0 : error_set(err, MUSTER_E_INVALID, "no target of the samples held out counts");
}

int evaluation_now(struct run *run, struct muster_error *err)
{
    const bool averaged = run->config.ema_evaluate;
    struct evaluation_figures *f = &run->evaluation->last;
    const struct instant start = clock_now(NULL);
    double sums[2];
    if ((averaged && muster_trainer_average(run->trainer, 1, err) < 0) || sum_all(run, sums, err) < 0 ||
        (averaged && muster_trainer_average(run->trainer, 0, err) < 0))
        return -1;
    f->loss = sums[0] / sums[1];
    f->counted = (int64_t)sums[1];
    f->ns = instant_diff_ns(clock_now(NULL), start);
    return 0;
}

/* The bytes of the tokens of so many targets, of which -1 counts nothing. */
static double bytes_of_targets(struct tokenizer *tokenizer, const int32_t *targets, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t bytes = targets[i] < 0 ? 0 : tokenizer_bytes(tokenizer, targets[i]);
        sum = bytes < 0 ? NAN : sum + (double)bytes;
    }
    return sum;
}

int evaluation_bytes(struct run *run, double *bytes, struct muster_error *err)
{
    const struct evaluation *e = run->evaluation;
    const struct train_batch batch = train_config_batch(&run->config, run->rank, run->world_size);
    const int64_t at_once = e->passes_at_once * run->config.micro_batch * batch.ranks;
    struct muster_error unread = {0};
    *bytes = NAN;
    if (inputs_classify(run->inputs) || !inputs_have_text(run->inputs))
        return 0;
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = inputs_tokenizer(run->inputs, NULL, &unread);
    double sum = 0;
    int64_t rows = tokenizer ? 0 : -1;
    for (int64_t first = 0, pass = 0; first < e->last.samples && rows >= 0;
         first += at_once, pass += e->passes_at_once) {
        rows = read_rows(run, pass, &unread);
        if (rows > 0)
            sum += bytes_of_targets(tokenizer, e->arrays[1], rows * run->config.sequence_length);
    }
    if (muster_world_agree(run->world, rows < 0 ? -1 : 0, err) < 0) {
        if (unread.code)
            *err = unread;
        return -1;
    }
    sum *= (double)batch.ranks / run->world_size; /* ranks with the same samples count once together */
    if (muster_trainer_reduce(run->trainer, &sum, 1, err) < 0)
        return -1;
    *bytes = sum > 0 ? sum : NAN;
    return 0;
}

int evaluation_step(struct run *run, int64_t step, bool *keep, struct muster_error *err)
{
    struct evaluation_figures *f = &run->evaluation->last;
    *keep = false;
    if (stop_cuts_short(run) || !is_due(run, step))
        return 0;
    if (muster_heartbeat(-1, err) < 0) /* it takes longer than a step */
        return -1;
    console_line_end();
    const int judged = evaluation_now(run, err) < 0 ? -1 : muster_trainer_judge(run->trainer, f->loss, err);
    if (judged < 0)
        return error_wrap(err, "evaluation after step %lld", (long long)step);
    f->best = judged & MUSTER_JUDGED_BEST;
    f->lowers = judged & MUSTER_JUDGED_LOWER;
    *keep = f->best && run->config.keep_best && step > run->progress.first;
    return 1;
}

bool evaluation_ends(const struct run *run)
{
    return run_state(run).stops_early;
}
