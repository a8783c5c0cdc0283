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
    int shift;     /* this rank's wish until all have agreed */
    bool agreed;   /* all ranks have the same shift */
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

void copies_describe_shift(const struct recover_copies *c, double *agreed, double *wanted)
{
    *agreed = c && c->agreed ? c->shift : 0;
    *wanted = copies_shift(c);
}

void copies_agree(struct recover_copies *c, int shift)
{
    if (!c || !c->shift)
        return;
    c->shift = shift;
    c->agreed = true;
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

/* to, from: the neighbours that this rank sends its own image, and receives one from; -1: none. */
static int exchange_images(const struct recover_copies *c, int to, int from, char *own, char *kept,
                           struct muster_error *err)
{
    const bool first = sends_first(c);
    if (first && to >= 0 && move(c, COMM_SEND, to, own, err) < 0)
        return -1;
    if (from >= 0 && move(c, COMM_RECV, from, kept, err) < 0)
        return -1;
    return first || to < 0 ? 0 : move(c, COMM_SEND, to, own, err);
}

/* Copies this rank's state and its text. */
static int copy_own(struct recover_copies *c, struct copy *own, const struct buffer *text,
                    struct muster_error *err)
{
    own->step = -1;
    image_copy_out(c->trainer, own->image);
    trainer_get_counts(c->trainer, &own->counts);
    own->text.length = 0;
    if (buffer_append(&own->text, text->data, text->length) < 0) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the text of a copy");
        return trainer_break(c->trainer, err, "copies in memory"); /* the neighbours wait */
    }
    own->step = c->trainer->steps;
    return 0;
}

static int exchange_copies(struct recover_copies *c, int to, int from, const struct copy *own,
                           struct copy *kept, struct muster_error *err)
{
    if (from >= 0)
        kept->step = -1;
    if (exchange_images(c, to, from, own->image, kept->image, err) < 0)
        return trainer_break(c->trainer, err, "copies in memory");
    kept->step = c->trainer->steps;
    return 0;
}

/* Nodes may have unequally many ranks: as far as the largest one has, the neighbour is on another node. */
static int agree_on_shift(struct recover_copies *c, struct muster_error *err)
{
    double most = c->shift;
    if (c->agreed)
        return 0;
    if (trainer_maximum(c->trainer, &most, 1, err) < 0)
        return -1;
    copies_agree(c, (int)most);
    return 0;
}

/* 1: copies are to be made; 0: a world of one has none. */
static int can_copy(struct recover_copies *c, struct muster_error *err)
{
    struct trainer *trainer = c->trainer;
    if (trainer_writable(trainer, err) || trainer_draw(trainer, err))
        return -1;
    if (!c->shift)
        return 0;
    return trainer_settle(trainer, err) ? trainer_break(trainer, err, "gathering for the next step") : 1;
}

int recover_copies_make(struct recover_copies *c, const struct buffer *text, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const int rank = c->trainer->rank, size = c->trainer->world_size, can = can_copy(c, e);
    struct copy *own = older_copy(c->own), *kept = older_copy(c->kept);
    if (can <= 0)
        return can;
    if (agree_on_shift(c, e) < 0)
        return -1;
    kept->step = -1;
    return copy_own(c, own, text, e) < 0 || exchange_copies(c, (rank + c->shift) % size,
                                                            (rank + size - c->shift) % size, own, kept, e) < 0
               ? -1
               : 0;
}

/* The copy of a step, or the place for it. */
static struct copy *copy_for(struct copy copies[RECOVER_GENERATIONS], int64_t step)
{
    for (int i = 0; i < RECOVER_GENERATIONS; i++)
        if (copies[i].step == step)
            return &copies[i];
    return older_copy(copies);
}

int copies_complete(struct recover_copies *c, const struct recover_rank *ranks, int64_t step,
                    const struct buffer *text, int64_t *moved, struct muster_error *err)
{
    const int rank = c->trainer->rank, size = c->trainer->world_size, can = can_copy(c, err);
    const int to = (rank + c->shift) % size, from = (rank + size - c->shift) % size;
    struct copy *own = copy_for(c->own, step), *kept = copy_for(c->kept, step);
    if (can <= 0)
        return can;
    if (own->step != step && copy_own(c, own, text, err) < 0)
        return -1;
    const bool sends = recover_generation(ranks[to].kept, step) < 0,
               receives = recover_generation(ranks[rank].kept, step) < 0;
    *moved += (sends + receives) * c->bytes;
    return exchange_copies(c, sends ? to : -1, receives ? from : -1, own, kept, err);
}
