/* checkpoint_once.c - one round of checkpoint.py: a checkpoint of GPT-2 124M on one rank, written and read,
 * against one copy of the state in memory and the same bytes written and read plainly.
 *
 *     checkpoint_once FOLDER [write-first]
 *
 * Prints one line: seconds of copy, plain write and sync, save, plain read and load (both after the files
 * were dropped from the page cache), and the bytes. FOLDER chooses the disk. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benchmarks/support/plain_files.h"
#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/rng.h"

struct once {
    char folder[256], plain[300];
    struct trainer *trainer;
    char *piece;
    int64_t bytes; /* of the rank's file */
};

/* All masters and moments into memory that is there already. */
static double copy(const struct once *o)
{
    scope_free char *to = mem_calloc((size_t)o->bytes, 1);
    const int params = trainer_model(o->trainer)->param_count;
    if (!to)
        return -1;
    memset(to, 1, (size_t)o->bytes);
    char *at = to;
    struct instant start = clock_now(NULL);
    for (int i = 0; i < params * TRAINER_TENSOR_COUNT; i++) {
        struct trainer_part part;
        if (!trainer_part(o->trainer, i % params, (enum trainer_tensor)(i / params), &part))
            continue;
        if (trainer_read_part(o->trainer, &part, part.first, part.count, at, NULL) < 0)
            return -1;
        at += part.count * dtype_size(part.dtype);
    }
    return plain_since(start);
}

static double save(struct once *o, struct muster_error *err)
{
    struct checkpoint_save what = {
        .trainer = o->trainer, .folder = o->folder, .retention = {.last = 1}, .run = {.step = 1}};
    struct instant start = clock_now(NULL);
    struct checkpoint_figures figures;
    if (checkpoint_save(&what, &figures, err) < 0)
        return -1;
    o->bytes = figures.bytes;
    return plain_since(start);
}

static double load(const struct once *o, struct muster_error *err)
{
    char path[300];
    scope_buffer report = {0};
    struct checkpoint_load what = {
        .trainer = o->trainer, .folder = o->folder, .world_size = 1, .report = &report};
    (void)snprintf(path, sizeof path, "%s/step-1/rank-0.safetensors", o->folder);
    if (plain_drop(path))
        return -1;
    struct instant start = clock_now(NULL);
    int loaded = checkpoint_load(&what, err);
    double seconds = plain_since(start);
    manifest_free(&what.manifest);
    return loaded == 1 ? seconds : -1;
}

/* Into new files both: a disk takes long to give the blocks of a large one back. */
static int once(struct once *o, bool write_first, struct muster_error *err)
{
    double wrote = write_first ? plain_write(o->plain, o->piece, o->bytes) : 0,
           saved = wrote < 0 ? -1 : save(o, err);
    if (!write_first)
        wrote = saved < 0 ? -1 : plain_write(o->plain, o->piece, o->bytes);
    double copied = saved < 0 || wrote < 0 ? -1 : copy(o);
    double was_read = copied < 0 || plain_drop(o->plain) ? -1 : plain_read(o->plain, o->piece),
           loaded = was_read < 0 ? -1 : load(o, err);
    if (loaded < 0)
        return -1;
    printf("copy %.6f write %.6f save %.6f read %.6f load %.6f bytes %lld\n", copied, wrote, saved, was_read,
           loaded, (long long)o->bytes);
    return 0;
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
    struct model *model = gpt2_create(&gpt, &err);
    const struct trainer_options options = {
        .plan = {.strategy = STRATEGY_NO_SHARD,
                 .shape = {1, 8},
                 .mesh = {1, 1, 1},
                 .micro_batches = 1,
                 .train = true},
        .world_size = 1,
        .threads = 1,
        .timeout_ns = 60 * NS_PER_S,
    };
    o.piece = mem_calloc(PLAIN_PIECE, 1);
    o.bytes = model ? (model_parameters(model) * 3 * 4 + PLAIN_PIECE - 1) / PLAIN_PIECE * PLAIN_PIECE
                    : 0;                             /* but for the header */
    for (int i = 0; o.piece && i < PLAIN_PIECE; i++) /* what a disk below cannot compress */
        o.piece[i] = (char)(rng_bits(1, RNG_SAMPLE, 0, (uint64_t)i) & 0xff);
    o.trainer = model && o.piece ? trainer_create(model, &options, &err) : NULL;
    int failed = !o.trainer || once(&o, argc > 2, &err) < 0;
    if (failed)
        fprintf(stderr, "checkpoint_once: %s\n",
                err.text[0] ? err.text : "a file could not be written or read");
    trainer_destroy(o.trainer);
    model_destroy(model);
    mem_free(o.piece);
    (void)unlink(o.plain);
    (void)folder_remove(o.folder, 1, NULL);
    folder_clean(o.folder);
    (void)rmdir(o.folder);
    return failed;
}
