/* keep.c - see keep.h. */
#include "runtime/train/recover/keep.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/train/recover/image.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer_state.h"

bool trainer_divides(const struct trainer *trainer)
{
    const struct plan *plan = &trainer->plan;
    bool plain = trainer->ops->host_memory && plan->options.compression.kind == COMPRESSION_NONE;
    /* images of different stages have different sizes */
    plain = plain && (plan->options.mesh.side[SIDE_PIPELINE] == 1 || plan->copies < 0);
    for (int g = 0; g < plan->group_count; g++)
        plain = plain && plan->groups[g].stored == STORED_PLAIN;
    return plain;
}

/* ---- its copies ---- */

void kept_steps(const struct recover_kept *kept, struct recover_rank *out)
{
    *out = (struct recover_rank){-1, {-1, -1}, {-1, -1}, 0};
    if (!kept)
        return;
    out->live = (double)kept->live.step;
    out->finishes = kept->next.step >= 0;
    for (int i = 0; i < RECOVER_GENERATIONS; i++) {
        out->own[i] = (double)kept->own[i].step;
        out->kept[i] = (double)kept->kept[i].step;
    }
}

static const struct copy *find_copy_of(const struct copy copies[RECOVER_GENERATIONS], int64_t step)
{
    for (int i = 0; i < RECOVER_GENERATIONS; i++)
        if (copies[i].step >= 0 && copies[i].step == step)
            return &copies[i];
    return NULL;
}

const struct copy *kept_live(const struct recover_kept *kept, int64_t step)
{
    const struct copy *live = kept->live.step == step ? &kept->live : &kept->next;
    return live->step >= 0 && live->step == step ? live : NULL;
}

const struct copy *kept_own(const struct recover_kept *kept, int64_t step)
{
    const struct copy *live = kept_live(kept, step);
    return live ? live : find_copy_of(kept->own, step);
}

const struct copy *kept_other(const struct recover_kept *kept, int64_t step)
{
    return find_copy_of(kept->kept, step);
}

int recover_kept_number(const struct recover_kept *kept)
{
    const struct plan_options *o = &kept->options;
    return mesh_line(o->mesh, o->strategy == STRATEGY_NO_SHARD ? AXIS_DATA : AXIS_REPLICATE, o->rank).color;
}

/* ---- keeping it ---- */

static void free_copy(struct copy *copy)
{
    mem_free(copy->image);
    buffer_free(&copy->text);
}

void recover_kept_destroy(struct recover_kept *kept)
{
    if (!kept)
        return;
    free_copy(&kept->live);
    free_copy(&kept->next);
    for (int i = 0; i < RECOVER_GENERATIONS; i++) {
        free_copy(&kept->own[i]);
        free_copy(&kept->kept[i]);
    }
    mem_free(kept->parts);
    mem_free(kept);
}
GUARD_DEFINE(kept, struct recover_kept *, recover_kept_destroy);

static int keep_text(struct copy *copy, const struct buffer *text, const struct trainer_counts *counts)
{
    copy->counts = *counts;
    return text->length ? buffer_append(&copy->text, text->data, text->length) : 0;
}

static int keep_live(const struct trainer *trainer, const struct buffer *text, struct recover_kept *kept)
{
    struct trainer_counts counts;
    const int64_t step = trainer_whole(trainer);
    if (step < 0)
        return 0;
    kept->live.image = mem_realloc(NULL, (size_t)kept->bytes, 1); /* not zeroed: it is filled */
    trainer_get_counts(trainer, &counts);
    if (!kept->live.image || keep_text(&kept->live, text, &counts) < 0)
        return -1;
    image_copy_out(trainer, kept->live.image);
    kept->live.step = step;
    return 0;
}

/* All ranks may go on with either of the two. */
static int keep_next(struct trainer *trainer, struct recover_kept *kept)
{
    if (trainer_finishes(trainer) < 0)
        return 0;
    kept->next.image = mem_realloc(NULL, (size_t)kept->bytes, 1);
    if (!kept->next.image)
        return -1;
    if (trainer_finish(trainer) == 0) {
        image_copy_out(trainer, kept->next.image);
        kept->next.step = trainer_whole(trainer);
    }
    return 0;
}

static int keep_copies(const struct copy *from, struct copy to[RECOVER_GENERATIONS], int64_t bytes)
{
    for (int i = 0; from && i < RECOVER_GENERATIONS; i++) {
        if (from[i].step < 0)
            continue;
        to[i].image = mem_realloc(NULL, (size_t)bytes, 1);
        if (!to[i].image || keep_text(&to[i], &from[i].text, &from[i].counts) < 0)
            return -1;
        memcpy(to[i].image, from[i].image, (size_t)bytes);
        to[i].step = from[i].step;
    }
    return 0;
}

/* Else the kernel might end this process: the others may have the state. */
static int check_room(const struct trainer *trainer, const struct recover_copies *copies, int sharing,
                      struct muster_error *err)
{
    const int64_t available = trainer->ops->memory_available(trainer->device) / (sharing > 1 ? sharing : 1);
    const int images =
        1 + (trainer_finishes(trainer) >= 0) + (copies_own(copies) ? 2 * RECOVER_GENERATIONS : 0);
    const int64_t bytes = images * image_bytes(&trainer->plan);
    char needed[32], free_text[32];
    if (available <= 0 || bytes <= available)
        return 0;
    return error_set(err, MUSTER_E_NOMEM,
                     "the state and its copies are %s, and this rank's part of what is free is %s",
                     text_format_bytes(needed, sizeof needed, bytes),
                     text_format_bytes(free_text, sizeof free_text, available));
}

int recover_keep(struct trainer *trainer, const struct recover_copies *copies, int sharing,
                 const struct buffer *mine, struct recover_kept **out, struct muster_error *err)
{
    struct recover_rank steps;
    if (check_room(trainer, copies, sharing, err) < 0)
        return -1;
    GUARD(guard_kept) struct recover_kept *kept = mem_calloc(1, sizeof *kept);
    const int layers = trainer->model->layer_count;
    if (!kept || !(kept->parts = mem_calloc((size_t)layers + 1, sizeof *kept->parts)))
        return error_set(err, MUSTER_E_NOMEM, "no memory to keep a state");
    for (int l = 0; l < layers; l++)
        kept->parts[l] = trainer->model->layers[l].part;
    kept->options = trainer->plan.options;
    kept->layout = trainer->plan.asked;
    kept->bytes = image_bytes(&trainer->plan);
    kept->shift = copies_shift(copies);
    kept->live.step = kept->next.step = -1;
    for (int i = 0; i < RECOVER_GENERATIONS; i++)
        kept->own[i].step = kept->kept[i].step = -1;
    if (keep_live(trainer, mine, kept) < 0 || keep_next(trainer, kept) < 0 ||
        keep_copies(copies_own(copies), kept->own, kept->bytes) < 0 ||
        keep_copies(copies_kept(copies), kept->kept, kept->bytes) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to keep a state of %lld bytes and its copies",
                         (long long)kept->bytes);
    kept_steps(kept, &steps);
    const bool has = recover_rank_has_any(&steps);
    *out = has ? take_pointer(&kept) : NULL;
    return has;
}
