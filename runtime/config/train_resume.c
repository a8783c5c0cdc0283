/* train_resume.c - see train_resume.h. */
#include "runtime/config/train_resume.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/config/train_settings.h"

/* Settings that do not belong to the training itself: places of files, durations of waits. */
static const char *const elsewhere[] = {
    "training.output",
    "training.output_format",
    "training.output_dtype",
    "training.output_shard_size",
    "training.checkpoint_dir",
    "training.checkpoint_every",
    "training.checkpoint_keep",
    "training.checkpoint_keep_every",
    "training.checkpoint_local_dir",
    "training.checkpoint_local_keep",
    "training.memory_copies",
    "training.checkpoint_command",
    "training.checkpoint_command_timeout",
    "training.resume",
    "training.resume_numerics",
    "training.resume_data",
    "training.resume_damaged",
    "training.threads",
    "training.device",
    "training.comm",
    "training.sync_errors",
    "training.cuda_graphs",
    "training.memory_limit",
    "training.timeout",
    "training.ema_export",
    "training.evaluate_every",
    "training.evaluate_samples",
    "training.evaluate_at_start",
    "training.evaluate_at_end",
    "training.keep_best",
    "training.export_best",
    "training.early_stop_patience",
    "training.early_stop_min_gain",
    "training.early_stop_metric",
    "training.ema_evaluate",
    "training.strict_batch",
    "training.stage_moments",
    "mesh.pipeline", /* the fingerprint tells of it */
    "mesh.schedule",
    "mesh.chunks",
    "mesh.spare",
    "mesh.cut",
};
/* Settings that determine the order of the samples. */
static const char *const fixed[] = {"training.seed", "training.sequence_length"};

static bool is_among(const char *const *names, size_t count, const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == length && !memcmp(names[i], name, length))
            return true;
    return false;
}
#define AMONG(names, name, length) is_among(names, sizeof(names) / sizeof *(names), name, length)

char **train_resume_texts(const struct train_config *config)
{
    struct train_config every = *config; /* the values are the other one's */
    char **texts;
    memset(every.sources, KNOB_FROM_RULE, sizeof every.sources); /* defaults too: they may change */
    texts = train_settings_texts(&every, "training");
    size_t kept = 0;
    for (size_t i = 0; texts && texts[i]; i++) {
        if (AMONG(elsewhere, texts[i], strcspn(texts[i], "=")))
            mem_free(texts[i]);
        else
            texts[kept++] = texts[i];
    }
    if (texts)
        texts[kept] = NULL;
    return texts;
}

/* The value of the same key. A list may have a key several times: `skip` entries of the key are passed over.
 */
static const char *value_in(const char *const *texts, const char *text, int skip)
{
    size_t length = strcspn(text, "=") + 1;
    for (size_t i = 0; texts && texts[i]; i++)
        if (!strncmp(texts[i], text, length) && !skip--)
            return texts[i] + length;
    return NULL;
}

static int compare_one(const char *written, const char *now, struct buffer *report, struct muster_error *err)
{
    const int length = (int)strcspn(written, "=");
    const char *value = written + length + 1;
    if (!strcmp(value, now))
        return 0;
    if (AMONG(fixed, written, (size_t)length))
        return error_set(
            err, MUSTER_E_REFUSED,
            "%.*s is %s, and the checkpoint was written with %s: samples would be missed or taken twice; "
            "set it back, or begin a new run in another training.checkpoint_dir",
            length, written, now, value);
    (void)buffer_printf(report, "%.*s is %s, and was %s\n", length, written, now, value);
    return report->failed ? error_set(err, MUSTER_E_NOMEM, "no memory to compare settings") : 0;
}

int train_resume_compare(const char *const *written, const char *const *now, struct buffer *report,
                         struct muster_error *err)
{
    for (size_t i = 0; written && written[i]; i++) {
        int before = 0; /* texts of the same key: it is a list */
        const char *value;
        for (size_t j = 0; j < i; j++)
            before += !strncmp(written[j], written[i], strcspn(written[i], "=") + 1);
        value = value_in(now, written[i], before);
        if (value && compare_one(written[i], value, report, err) < 0)
            return -1;
    }
    return 0;
}
