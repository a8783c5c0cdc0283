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

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/model/gpt2.h"
#include "runtime/model/rng.h"

enum { PIECE = 1 << 20 };

struct once {
    char folder[256], plain[300];
    struct trainer *trainer;
    char *piece;
    int64_t bytes; /* of the rank's file */
};

static double since(struct instant start)
{
    return (double)instant_diff_ns(clock_now(NULL), start) / 1e9;
}

static double write_plainly(const struct once *o)
{
    struct instant start = clock_now(NULL);
    int fd = open(o->plain, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool good = fd >= 0;
    for (int64_t done = 0; good && done < o->bytes; done += PIECE)
        good = write(fd, o->piece, PIECE) == PIECE;
    good = good && !fsync(fd);
    if (fd >= 0)
        good = !close(fd) && good;
    return good ? since(start) : -1;
}

static int drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int failed = fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (fd >= 0)
        (void)close(fd);
    return failed;
}

static double read_plainly(const struct once *o)
{
    if (drop(o->plain))
        return -1;
    struct instant start = clock_now(NULL);
    int fd = open(o->plain, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? 1 : -1;
    while (got > 0)
        got = read(fd, o->piece, PIECE);
    if (fd >= 0)
        (void)close(fd);
    return got < 0 ? -1 : since(start);
}

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
    return since(start);
}

static double save(struct once *o, struct muster_error *err)
{
    struct checkpoint_save what = {
        .trainer = o->trainer, .folder = o->folder, .retention = {.last = 1}, .run = {.step = 1}};
    struct instant start = clock_now(NULL);
    if (checkpoint_save(&what, err) < 0)
        return -1;
    o->bytes = what.bytes;
    return since(start);
}

static double load(const struct once *o, struct muster_error *err)
{
    char path[300];
    scope_buffer report = {0};
    struct checkpoint_load what = {
        .trainer = o->trainer, .folder = o->folder, .world_size = 1, .report = &report};
    (void)snprintf(path, sizeof path, "%s/step-1/rank-0.safetensors", o->folder);
    if (drop(path))
        return -1;
    struct instant start = clock_now(NULL);
    int loaded = checkpoint_load(&what, err);
    double seconds = since(start);
    manifest_free(&what.manifest);
    return loaded == 1 ? seconds : -1;
}

/* Into new files both: a disk takes long to give the blocks of a large one back. */
static int once(struct once *o, bool write_first, struct muster_error *err)
{
    double wrote = write_first ? write_plainly(o) : 0, saved = wrote < 0 ? -1 : save(o, err);
    if (!write_first)
        wrote = saved < 0 ? -1 : write_plainly(o);
    double copied = saved < 0 || wrote < 0 ? -1 : copy(o);
    double was_read = copied < 0 ? -1 : read_plainly(o), loaded = was_read < 0 ? -1 : load(o, err);
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
    o.piece = mem_calloc(PIECE, 1);
    o.bytes =
        model ? (model_parameters(model) * 3 * 4 + PIECE - 1) / PIECE * PIECE : 0; /* but for the header */
    for (int i = 0; o.piece && i < PIECE; i++) /* what a disk below cannot compress */
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
