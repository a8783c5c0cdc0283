/* copies.c - copies of the state in the memory of this rank and of a neighbour. See recover.h and copies.h.
 */
#include "runtime/train/recover/copies.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/recover/image.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer_state.h"

struct recover_copies {
    struct trainer *trainer;
    int shift;
    int64_t bytes; /* the size of an image */
    struct copy own[RECOVER_GENERATIONS], kept[RECOVER_GENERATIONS];
};

/* ---- for an exchange after a loss ---- */

const struct copy *copies_own(const struct recover_copies *c)
{
    return c ? c->own : NULL;
}

const struct copy *copies_kept(const struct recover_copies *c)
{
    return c ? c->kept : NULL;
}

int copies_shift(const struct recover_copies *c)
{
    return c ? c->shift : 0;
}

void copies_steps(const struct recover_copies *c, double own[RECOVER_GENERATIONS],
                  double kept[RECOVER_GENERATIONS])
{
    for (int i = 0; i < RECOVER_GENERATIONS; i++) {
        own[i] = c ? (double)c->own[i].step : -1;
        kept[i] = c ? (double)c->kept[i].step : -1;
    }
}

/* It is there: recover_choose has found it. */
static const struct copy *find_copy(const struct copy copies[RECOVER_GENERATIONS], int64_t step)
{
    return copies[0].step == step ? &copies[0] : &copies[1];
}

void copies_restore(struct recover_copies *c, int64_t step)
{
    image_copy_in(c->trainer, find_copy(c->own, step)->image);
}

struct cursor {
    char *at;
    int (*visit)(void *context, char *bytes, int64_t count);
    void *context;
};

static int visit_copy(void *context, char *bytes, int64_t count)
{
    struct cursor *cursor = context;
    char *at = cursor->at;
    (void)bytes; /* they are this rank's own state */
    cursor->at += count;
    return cursor->visit(cursor->context, at, count);
}

int copies_walk_kept(struct recover_copies *c, int64_t step,
                     int (*visit)(void *context, char *bytes, int64_t count), void *context)
{
    struct cursor cursor = {find_copy(c->kept, step)->image, visit, context};
    return image_walk(c->trainer, visit_copy, &cursor);
}

const struct buffer *copies_text(const struct recover_copies *c, int64_t step, struct trainer_counts *counts)
{
    const struct copy *copy = find_copy(c->own, step);
    *counts = copy->counts;
    return &copy->text;
}

void copies_reset(struct recover_copies *c, int64_t step)
{
    for (int i = 0; c && i < RECOVER_GENERATIONS; i++) {
        c->own[i].step = c->own[i].step > step ? -1 : c->own[i].step;
        c->kept[i].step = c->kept[i].step > step ? -1 : c->kept[i].step;
    }
}

/* ---- making them ---- */

void recover_copies_destroy(struct recover_copies *c)
{
    for (int i = 0; c && i < RECOVER_GENERATIONS; i++)
        buffer_free(&c->own[i].text);
    mem_free(c); /* the images are the plan's */
}

struct recover_copies *recover_copies_create(struct trainer *trainer, int ranks_per_node,
                                             struct muster_error *err)
{
    const struct plan *plan = &trainer->plan;
    const bool nodes = ranks_per_node > 0 && ranks_per_node < trainer->world_size;
    struct recover_copies *c = mem_calloc(1, sizeof *c);
    if (!c) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for copies of the state");
        return NULL;
    }
    c->trainer = trainer;
    c->shift = trainer->world_size == 1 ? 0 : nodes ? ranks_per_node : 1;
    c->bytes = plan->entries[plan->copies].bytes / (2 * RECOVER_GENERATIONS);
    char *images = executor_address(&trainer->parts, plan->copies, 0);
    for (int i = 0; i < RECOVER_GENERATIONS; i++) {
        c->own[i].step = c->kept[i].step = -1;
        c->own[i].image = images + i * c->bytes;
        c->kept[i].image = images + (RECOVER_GENERATIONS + i) * c->bytes;
    }
    return c;
}

static struct copy *older_copy(struct copy copies[RECOVER_GENERATIONS])
{
    return copies[0].step <= copies[1].step ? &copies[0] : &copies[1];
}

static int move(const struct recover_copies *c, enum comm_kind kind, int peer, char *image,
                struct muster_error *err)
{
    struct trainer *trainer = c->trainer;
    const struct comm_op op = {.kind = kind, .dtype = DTYPE_U8, .root = peer, .count = c->bytes};
    return trainer->comms.ops->run(trainer->comms.control, &op, image, image, err);
}

/* Whether this rank sends before it receives: of two ranks one does, where nodes have equally many. Else all
 * but the last ones of each circle do, one after the other. */
static bool sends_first(const struct recover_copies *c)
{
    const int rank = c->trainer->rank, size = c->trainer->world_size;
    return size % c->shift ? rank + c->shift < size : rank / c->shift % 2 == 0;
}

static int exchange_images(const struct recover_copies *c, char *own, char *kept, struct muster_error *err)
{
    const int rank = c->trainer->rank, size = c->trainer->world_size;
    const int to = (rank + c->shift) % size, from = (rank + size - c->shift) % size;
    const bool first = sends_first(c);
    if (first && move(c, COMM_SEND, to, own, err) < 0)
        return -1;
    if (move(c, COMM_RECV, from, kept, err) < 0)
        return -1;
    return first ? 0 : move(c, COMM_SEND, to, own, err);
}

int recover_copies_make(struct recover_copies *c, const struct buffer *text, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct trainer *trainer = c->trainer;
    struct copy *own = older_copy(c->own), *kept = older_copy(c->kept);
    if (trainer_writable(trainer, e) || trainer_draw(trainer, e))
        return -1;
    if (!c->shift)
        return 0;
    if (trainer_settle(trainer, e))
        return trainer_break(trainer, e, "gathering for the next step");
    own->step = kept->step = -1;
    image_copy_out(trainer, own->image);
    trainer_get_counts(trainer, &own->counts);
    own->text.length = 0;
    if (buffer_append(&own->text, text->data, text->length) < 0) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory for the text of a copy");
        return trainer_break(trainer, e, "copies in memory"); /* the neighbours wait */
    }
    own->step = trainer->steps;
    if (exchange_images(c, own->image, kept->image, e) < 0)
        return trainer_break(trainer, e, "copies in memory");
    kept->step = trainer->steps;
    return 0;
}
