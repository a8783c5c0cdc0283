/* quantize.c - muster-train quantize: a checkpoint or a model in few bits, and its loss before and after. See
 * results.h.
 *
 * Evaluated as by muster-train eval; calibrated with the first samples of the training, in its order. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/run/command/command.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/inputs.h"
#include "trainer/run/results.h"

enum { CALIBRATION = 64 }; /* samples, without --calibration */

struct quantizing {
    struct run *run;
    const struct command_quantize *asked;
    struct muster_quantization about;
    int64_t samples;                   /* size of the calibration set; 0: none */
    void *arrays[BATCH_SOURCE_ARRAYS]; /* memory of these samples */
    double loss[2];                    /* before, after */
    double seconds;                    /* time to quantise and write */
};

static bool calibrates(const struct command_quantize *asked)
{
    return !strcmp(asked->method, "gptq");
}

int quantize_settings(struct train_config *config, const struct command_quantize *asked,
                      struct muster_error *err)
{
    if (train_config_reads_pictures(config) || train_config_reads_labels(config))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "model.architecture is a model of %s; gpt2 and llama are quantised",
                         train_config_reads_pictures(config) ? "pictures" : "labelled texts");
    if (asked->calibration && !calibrates(asked))
        return error_set(err, MUSTER_E_INVALID,
                         "--calibration %lld has no effect with --method %s; gptq has one",
                         (long long)asked->calibration, asked->method);
    if (asked->group && strcmp(asked->method, "int4") != 0 && !calibrates(asked))
        return error_set(err, MUSTER_E_INVALID,
                         "--group %lld has no effect with --method %s; int4 and gptq have groups",
                         (long long)asked->group, asked->method);
    return eval_settings(config, err);
}

static int quantize_inputs(struct run *run, struct muster_error *err)
{
    run->inputs = inputs_open(&run->config, run->rank, err);
    if (!run->inputs || run_open_model(run, err) < 0)
        return -1;
    return evaluation_open(run, err);
}

static int read_calibration(struct quantizing *q, struct muster_error *err)
{
    const struct batch_source source = inputs_source(q->run->inputs);
    const int64_t wanted = q->asked->calibration ? q->asked->calibration : CALIBRATION;
    if (!calibrates(q->asked))
        return 0;
    q->samples = wanted < source.samples ? wanted : source.samples;
    if (!batch_source_reserve(&source, (size_t)q->samples, q->arrays))
        return error_set(err, MUSTER_E_NOMEM,
                         "no memory for %lld samples of calibration: give fewer (--calibration)",
                         (long long)q->samples);
    for (int64_t i = 0; i < q->samples; i++)
        if (batch_source_read(&source, (uint64_t)i, q->arrays, i, err) < 0)
            return -1;
    return 0;
}

/* ---- the table ---- */

static double bits(const struct quantizing *q, int64_t bytes)
{
    return 8.0 * (double)bytes / (double)run_state(q->run).parameters;
}

static void table_row(struct buffer *out, const char *name, double loss, int64_t bytes, double bits_each)
{
    char size[32];
    (void)buffer_printf(out, "%-8s %9.4f %11.2f %14lld %11s %8.2f\n", name, loss, exp(loss), (long long)bytes,
                        text_format_bytes(size, sizeof size, bytes), bits_each);
}

static void method_text(const struct quantizing *q, struct buffer *out)
{
    const struct muster_quantization *a = &q->about;
    (void)buffer_printf(out, "%s", a->method);
    if (!strcmp(a->method, "int4") || calibrates(q->asked))
        (void)buffer_printf(out, " in groups of %lld", (long long)a->group);
    (void)buffer_printf(out, ": %d of %d tensors", a->tensors, a->tensors + a->kept);
    if (a->pruned)
        (void)buffer_printf(out, ", %.1f%% of their elements pruned",
                            100.0 * (double)a->pruned / (double)a->elements);
    if (q->samples)
        (void)buffer_printf(out, ", calibrated with %lld samples of %lld tokens", (long long)q->samples,
                            (long long)q->run->config.sequence_length);
    (void)buffer_printf(out, ", in %.1f s\n", q->seconds);
}

static void table_text(const struct quantizing *q, struct buffer *out)
{
    const struct muster_quantization *a = &q->about;
    method_text(q, out);
    (void)buffer_printf(out, "%-8s %9s %11s %14s %11s %8s\n", "", "loss", "perplexity", "bytes", "", "bits");
    table_row(out, "before", q->loss[0], a->plain_bytes, bits(q, a->plain_bytes));
    table_row(out, "after", q->loss[1], a->bytes, bits(q, a->bytes));
    (void)buffer_printf(out, "saved %s\n", q->asked->to);
}

static void table_json(const struct quantizing *q, struct buffer *out)
{
    const struct muster_quantization *a = &q->about;
    (void)buffer_printf(out, "{\"method\": \"%s\", \"group\": %lld, \"tensors\": %d, \"kept\": %d, ",
                        a->method, (long long)a->group, a->tensors, a->kept);
    (void)buffer_printf(out, "\"elements\": %lld, \"pruned\": %lld, \"calibration_samples\": %lld, ",
                        (long long)a->elements, (long long)a->pruned, (long long)q->samples);
    result_number(out, "loss_before", q->loss[0]);
    result_number(out, "loss_after", q->loss[1]);
    (void)buffer_printf(out, "\"bytes_before\": %lld, \"bytes_after\": %lld, \"tokens\": %lld, ",
                        (long long)a->plain_bytes, (long long)a->bytes,
                        (long long)evaluation_last(q->run)->counted);
    (void)buffer_printf(out, "\"seconds\": %.6f}\n", q->seconds);
}

static int print_table(const struct quantizing *q, bool json, FILE *to, struct muster_error *err)
{
    scope_buffer out = {0};
    if (json)
        table_json(q, &out);
    else
        table_text(q, &out);
    return result_print(to, &out, err);
}

/* ---- all of it ---- */

static int loss_now(struct quantizing *q, int which, struct muster_error *err)
{
    if (muster_heartbeat(-1, err) < 0)
        return -1;
    if (evaluation_now(q->run, err) < 0)
        return error_wrap(err, "evaluation");
    q->loss[which] = evaluation_last(q->run)->loss;
    return 0;
}

static int check_alone(struct quantizing *q, struct muster_error *err)
{
    if (q->run->world_size == 1)
        return muster_export_probe(q->asked->to, "hf", err);
    return error_set(
        err, MUSTER_E_INVALID,
        "muster-train quantize is one process, and there are %d ranks: start it without muster run",
        q->run->world_size);
}

static int quantize(struct quantizing *q, const struct restore_source *source, struct muster_error *err)
{
    struct run *run = q->run;
    if (restore_run(run, source, quantize_inputs, err) < 0 || check_alone(q, err) < 0 ||
        read_calibration(q, err) < 0)
        return -1;
    if (run->config.ema_export && muster_trainer_average(run->trainer, 1, err) < 0)
        return -1;
    if (calibrates(q->asked) && !(run->config.validation_share > 0) &&
        !strcmp(run->config.validation_path, run->config.path))
        fprintf(stderr,
                "muster-train: warning: nothing is held out: the calibration set is part of the text whose "
                "loss is shown; set data.validation_share or data.validation_path\n");
    if (loss_now(q, 0, err) < 0 || muster_heartbeat(-1, err) < 0)
        return -1;
    q->about = (struct muster_quantization){.size = sizeof q->about,
                                            .tables = q->asked->tables,
                                            .method = q->asked->method,
                                            .group = q->asked->group,
                                            .prune = q->asked->prune,
                                            .keep = q->asked->keep};
    const struct instant begun = clock_now(NULL);
    if (muster_trainer_quantize(run->trainer, &q->about, (const void *const *)q->arrays, q->samples,
                                q->asked->to, err) < 0)
        return -1;
    q->seconds = (double)instant_diff_ns(clock_now(NULL), begun) / (double)NS_PER_S;
    return inputs_copy_tokenizer(run->inputs, q->asked->to, err) < 0 ? -1 : loss_now(q, 1, err);
}

int quantize_run(struct run *run, const struct restore_source *source, const struct command_quantize *asked,
                 bool json, struct muster_error *err)
{
    struct quantizing q = {.run = run, .asked = asked};
    FILE *out = json ? console_take_output(err) : stdout;
    if (!out)
        return -1;
    const int result = quantize(&q, source, err) < 0 ? -1 : print_table(&q, json, out, err);
    if (json)
        (void)fclose(out); /* it was flushed */
    for (int i = 0; i < BATCH_SOURCE_ARRAYS; i++)
        mem_free(q.arrays[i]);
    return result;
}
