/* checkpoint_once.c - one round of checkpoint.py: a checkpoint of GPT-2 124M on one rank, written during a
 * step and read, against one copy of the state in memory and the same bytes written and read plainly.
 *
 *     checkpoint_once FOLDER [plain-first]
 *
 * Prints one line of seconds: copy; direct (the same bytes, past the page cache and synced); save (from the
 * begin to the commit, while a step runs); stall (of training in it); step, and stepped (the step during the
 * save); read (past the page cache) and load (both from the disk); and the bytes. FOLDER chooses the disk.
 * The state is of random bits, because some disks store zeros and repetitions faster. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "benchmarks/support/plain_files.h"
#include "proto/base/guard.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/model/architectures.h"

enum { POSITIONS = 256, MICRO_BATCHES = 4, THREADS = 2 };

struct once {
    char folder[256], plain[300], path[320];
    struct trainer *trainer;
    char *state; /* a copy of all values and moments */
    int64_t bytes, room;
    double copied, direct, saved, stalled, stepped, step, was_read, loaded;
};

/* Each part of the state in turn, to or from the copy. */
static int each_part(struct once *o, bool write)
{
    char *at = o->state;
    const int params = trainer_model(o->trainer)->param_count;
    for (int i = 0; i < params * TRAINER_TENSOR_COUNT; i++) {
        struct trainer_part part;
        if (!trainer_part(o->trainer, i % params, (enum trainer_tensor)(i / params), &part))
            continue;
        int failed = write ? trainer_write_part(o->trainer, &part, part.first, part.count, at, NULL)
                           : trainer_read_part(o->trainer, &part, part.first, part.count, at, NULL);
        if (failed)
            return -1;
        at += part.count * dtype_size(part.dtype);
    }
    o->bytes = at - o->state;
    return 0;
}

/* Small positive floats of random bits. */
static int fill_state(struct once *o)
{
    uint64_t x = 88172645463325252u;
    for (int64_t i = 0; i < o->room / 4; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint32_t bits = (uint32_t)(x >> 32 & 0x007fffff) | (uint32_t)(0x3a000000 + (x & 3) * 0x800000);
        memcpy(o->state + 4 * i, &bits, sizeof bits);
    }
    return each_part(o, true);
}

static int take_step(struct once *o, double *seconds, struct muster_error *err)
{
    static int32_t tokens[MICRO_BATCHES * POSITIONS], targets[MICRO_BATCHES * POSITIONS];
    const struct trainer_step_values values = {.learning_rate = 1e-9, /* the bits stay random */
                                               .beta1 = 0.9,
                                               .beta2 = 0.95,
                                               .epsilon = 1e-8,
                                               .global_tokens = MICRO_BATCHES * POSITIONS};
    struct instant start = clock_now(NULL);
    int result = trainer_step(o->trainer, &(struct batch){{tokens, targets}}, &values, NULL, err);
    *seconds = plain_since(start);
    return result;
}

/* Training goes on during it. */
static int save_behind(struct once *o, struct muster_error *err)
{
    struct checkpoint_kept kept = {0};
    const struct checkpoint_save what = {.trainer = o->trainer,
                                         .folder = o->folder,
                                         .retention = {.last = 1},
                                         .kept = &kept,
                                         .run = {.step = 1}};
    if (checkpoint_kept_make(&kept, err) < 0)
        return -1;
    struct checkpoint_writer *writer = checkpoint_begin(&what);
    int saved = 0;
    for (int steps = 0; !saved; steps++) {
        double seconds;
        saved = take_step(o, &seconds, err) < 0 ? -1 : checkpoint_poll(writer, NULL, false, err);
        o->stepped = steps ? o->stepped : seconds;
    }
    o->stalled = (double)checkpoint_figures(writer).stall_ns / 1e9;
    checkpoint_end(writer);
    checkpoint_kept_free(&kept);
    return saved < 0 ? -1 : 0;
}

/* The disk alone. */
static int save_alone(struct once *o, struct muster_error *err)
{
    const struct checkpoint_save what = {
        .trainer = o->trainer, .folder = o->folder, .retention = {.last = 1}, .run = {.step = 1}};
    struct checkpoint_figures figures;
    int result = checkpoint_save(&what, &figures, err);
    o->saved = (double)figures.ns / 1e9;
    return result;
}

static int load(struct once *o, struct muster_error *err)
{
    scope_buffer report = {0};
    struct checkpoint_load what = {
        .trainer = o->trainer, .folder = o->folder, .world_size = 1, .report = &report};
    if (plain_drop(o->path))
        return -1;
    struct instant start = clock_now(NULL);
    int loaded = checkpoint_load(&what, err);
    o->loaded = plain_since(start);
    manifest_free(&what.manifest);
    return loaded == 1 ? 0 : -1;
}

static int write_plainly(struct once *o)
{
    o->direct = plain_write_direct(o->plain, o->state, o->bytes);
    return o->direct < 0 ? -1 : 0;
}

static int read_plainly(struct once *o)
{
    o->was_read = plain_drop(o->plain) ? -1 : plain_read_direct(o->plain, o->state);
    return o->was_read < 0 ? -1 : 0;
}

static int copy(struct once *o)
{
    struct instant start = clock_now(NULL);
    int result = each_part(o, false);
    o->copied = plain_since(start);
    return result;
}

/* Into new files both: a disk takes long to give the blocks of a large one back. */
static int once(struct once *o, bool plain_first, struct muster_error *err)
{
    double unused;
    if (fill_state(o) < 0 || take_step(o, &unused, err) < 0 || take_step(o, &o->step, err) < 0 || copy(o) < 0)
        return -1;
    if ((plain_first && write_plainly(o) < 0) || save_alone(o, err) < 0 ||
        (!plain_first && write_plainly(o) < 0))
        return -1;
    if ((plain_first && read_plainly(o) < 0) || load(o, err) < 0 || (!plain_first && read_plainly(o) < 0))
        return -1;
    if (unlink(o->plain) < 0 || folder_remove(o->folder, 1, err) < 0 || save_behind(o, err) < 0)
        return -1;
    printf(
        "copy %.6f direct %.6f save %.6f stall %.6f step %.6f stepped %.6f read %.6f load %.6f bytes %lld\n",
        o->copied, o->direct, o->saved, o->stalled, o->step, o->stepped, o->was_read, o->loaded,
        (long long)o->bytes);
    return 0;
}

static struct trainer *open_trainer(const struct model *model, struct muster_error *err)
{
    const struct trainer_options options = {
        .plan = {.strategy = STRATEGY_NO_SHARD,
                 .shape = {1, POSITIONS},
                 .mesh = MESH(1, 1, 1),
                 .micro_batches = MICRO_BATCHES,
                 .train = true},
        .world_size = 1,
        .threads = THREADS,
        .timeout_ns = 60 * NS_PER_S,
    };
    return trainer_create(model, &options, err);
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    struct once o = {0};
    const struct gpt2_config gpt = {
        .layers = 12, .channels = 768, .heads = 12, .vocab = 50257, .max_positions = 1024};
    (void)snprintf(o.folder, sizeof o.folder, "%s/checkpoint_once.XXXXXX", argc > 1 ? argv[1] : ".");
    if (!mkdtemp(o.folder)) {
        perror(o.folder);
        return 1;
    }
    (void)snprintf(o.plain, sizeof o.plain, "%s/plain", o.folder);
    (void)snprintf(o.path, sizeof o.path, "%s/step-1/rank-0.safetensors", o.folder);
    struct model *model = gpt2_create(&gpt, &err);
    o.room = model ? (model_parameters(model) * 3 * 4 + PLAIN_LARGE) / PLAIN_LARGE * PLAIN_LARGE : 0;
    void *memory = mmap(NULL, (size_t)o.room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    o.state = memory == MAP_FAILED ? NULL : memory;
    o.trainer = model && o.state ? open_trainer(model, &err) : NULL;
    int failed = !o.trainer || once(&o, argc > 2, &err) < 0;
    if (failed)
        fprintf(stderr, "checkpoint_once: %s\n",
                err.text[0] ? err.text : "a file could not be written or read");
    trainer_destroy(o.trainer);
    model_destroy(model);
    (void)unlink(o.plain);
    (void)folder_remove(o.folder, 1, NULL);
    folder_clean(o.folder, -1);
    (void)rmdir(o.folder);
    return failed;
}
