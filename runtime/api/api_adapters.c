/* api_adapters.c - see api_trainer.h.
 *
 * The hash covers all values of the base as the trainer holds them, for any number of ranks: rank 0 sees each
 * group once, as in an export. It is formed once a run, before the first checkpoint is written or read. */
#include "runtime/api/api_trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/checksum.h"
#include "proto/base/error.h"
#include "proto/base/text.h"

static const char base_key[] = "lora.base", alpha_key[] = "lora.alpha";

bool api_adapts(const struct muster_trainer *t)
{
    return t->model.adapter_scale != 0;
}

void api_forget_base(struct muster_trainer *t)
{
    t->base[0] = '\0';
}

/* ---- the hash ---- */

struct hashing {
    const struct model *model;
    int element; /* bytes */
    struct checksum crc;
    uint64_t sum; /* sum over all parameters, in any order */
};

static int hash_param(void *context, int param, const void *values, struct muster_error *err)
{
    (void)err;
    struct hashing *h = context;
    const struct param_desc *desc = &h->model->params[param];
    if (desc->adapter != PARAM_OF_BASE)
        return 0;
    const uint32_t crc = checksum_add(&h->crc, 0, values, param_elements(desc) * h->element);
    uint64_t hash = text_hash(TEXT_HASH_START, desc->name, strlen(desc->name));
    h->sum += text_hash(hash, &crc, sizeof crc);
    return 0;
}

/* Rank 0's, on every rank. */
static int share_hash(struct muster_trainer *t, uint64_t *hash, struct muster_error *err)
{
    double halves[2] = {0};
    if (!t->rank) {
        halves[0] = (double)(*hash >> 32);
        halves[1] = (double)(*hash & UINT32_MAX);
    }
    if (trainer_reduce(t->trainer, halves, 2, err) < 0)
        return -1;
    *hash = (uint64_t)halves[0] << 32 | (uint64_t)halves[1];
    return 0;
}

static int form_hash(struct muster_trainer *t, struct muster_error *err)
{
    struct hashing h = {.model = &t->model, .element = dtype_size(trainer_kernels(t->trainer)->statistic)};
    checksum_make(&h.crc, true);
    if (trainer_each_param_of(t->trainer, TRAINER_PARAMS_BASE, t->rank ? NULL : hash_param, &h, err) < 0 ||
        share_hash(t, &h.sum, err) < 0)
        return -1;
    const enum stored stored = t->shared->architecture.lora.base;
    (void)snprintf(t->base, sizeof t->base, "%016" PRIx64 " %s%s%s", h.sum, dtype_name(t->plan.param_dtype),
                   stored ? "+" : "", stored ? stored_name(stored) : ""); /* fits */
    return 0;
}

int api_note_base(struct muster_trainer *t, struct muster_error *err)
{
    char alpha[32];
    if (!api_adapts(t))
        return 0;
    if (!t->base[0] && form_hash(t, err) < 0)
        return -1;
    (void)snprintf(alpha, sizeof alpha, "%.17g", t->shared->architecture.lora.alpha); /* fits */
    return muster_trainer_note(t, base_key, t->base, err) < 0 ? -1
                                                              : muster_trainer_note(t, alpha_key, alpha, err);
}

/* ---- comparing ---- */

static const char *noted(manifest_texts notes, const char *key)
{
    const size_t length = strlen(key);
    for (size_t i = 0; notes && notes[i]; i++)
        if (!strncmp(notes[i], key, length) && notes[i][length] == '=')
            return notes[i] + length + 1;
    return NULL;
}

static int compare_alpha(const struct muster_trainer *t, const char *written, struct muster_error *err)
{
    const double now = t->shared->architecture.lora.alpha;
    double before;
    if (!written || !text_double(written, &before) || before == now)
        return 0;
    return error_set(
        err, MUSTER_E_REFUSED,
        "lora.alpha is %g, and the checkpoint's adapters were trained with %g: set it back, or begin a "
        "new run in another training.checkpoint_dir",
        now, before);
}

int api_compare_base(const struct muster_trainer *t, manifest_texts notes, struct buffer *report,
                     struct muster_error *err)
{
    const char *written = noted(notes, base_key);
    if (!api_adapts(t))
        return 0;
    if (compare_alpha(t, noted(notes, alpha_key), err) < 0)
        return -1;
    if (written && !strcmp(written, t->base))
        return 0;
    const char *type = written ? strchr(written, ' ') : NULL, *now = strchr(t->base, ' ');
    if (!type || !now || strcmp(type, now) != 0) {
        (void)buffer_printf(report, "the base was held in%s and is in%s: its hash is not compared\n",
                            type ? type : " another type", now ? now : " another type");
        return 0;
    }
    return error_set(
        err, MUSTER_E_REFUSED,
        "the checkpoint's adapters are of another base, whose hash is %.16s; that of %s%s%s is "
        "%.16s: name the base that they were trained with (model.path), or begin a new run in another "
        "training.checkpoint_dir",
        written, t->model.name, t->folder ? " from " : "", t->folder ? t->folder : "", t->base);
}
