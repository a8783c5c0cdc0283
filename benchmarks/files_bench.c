/* files_bench.c - models in and out of files against the same bytes written and read plainly.
 *
 *     files_bench [ROUNDS [FOLDER]]
 *
 * A GPT-2 124M on one rank, in float32 and bf16: exported as a folder of Hugging Face, and imported again,
 * with the file in the page cache and after it was dropped from it. The limit of each, in the same round: as
 * many bytes written in pieces of 1 MB and synced, and read in such pieces. Prints medians and ratios. FOLDER
 * (default: .) selects the disk. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benchmarks/support/figures.h"
#include "benchmarks/support/plain_files.h"
#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "runtime/files/files.h"

enum { ROUNDS_MOST = 21 };

static const struct architecture model_124m = {
    .kind = ARCHITECTURE_GPT2,
    .gpt2 = {.layers = 12, .channels = 768, .heads = 12, .vocab = 50257, .max_positions = 1024}};

enum { EXPORT, WRITE, IMPORT, READ, IMPORT_COLD, READ_COLD, MEASURES };

struct bench {
    char folder[256], model[300], plain[300];
    enum dtype dtype;
    struct trainer *trainer;
    int64_t bytes;
    char *piece;
    double seconds[MEASURES][ROUNDS_MOST];
};

static double export_model(const struct bench *b, struct muster_error *err)
{
    const struct files_export what = {.format = FILES_HF, .dtype = b->dtype, .architecture = &model_124m};
    struct instant start = clock_now(NULL);
    return files_export(b->trainer, b->folder, &what, err) ? -1 : plain_since(start);
}

static double import_model(const struct bench *b, struct muster_error *err)
{
    struct instant start = clock_now(NULL);
    GUARD(guard_files) struct files *files = files_open(b->folder, err);
    if (!files || files_match(files, trainer_model(b->trainer), &model_124m, err) ||
        files_load(files, b->trainer, err))
        return -1;
    return plain_since(start);
}

static int one_round(struct bench *b, int round, struct muster_error *err)
{
    struct stat status;
    b->seconds[EXPORT][round] = export_model(b, err);
    if (b->seconds[EXPORT][round] < 0 || stat(b->model, &status))
        return -1;
    b->bytes = status.st_size;
    b->seconds[WRITE][round] = plain_write(b->plain, b->piece, b->bytes);
    b->seconds[READ][round] = plain_read(b->model, b->piece);
    b->seconds[IMPORT][round] = import_model(b, err);
    bool dropped = !plain_drop(b->model);
    b->seconds[IMPORT_COLD][round] = import_model(b, err);
    dropped = dropped && !plain_drop(b->model);
    b->seconds[READ_COLD][round] = plain_read(b->model, b->piece);
    for (int i = 0; i < MEASURES; i++)
        dropped = dropped && b->seconds[i][round] >= 0;
    return dropped ? 0 : -1;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void print_row(struct bench *b, const char *what, int measure, int limit, int rounds)
{
    double ours = median(b->seconds[measure], rounds), plain = median(b->seconds[limit], rounds);
    double megabytes = (double)b->bytes / 1e6;
    char figure[128];
    (void)snprintf(figure, sizeof figure, "Hugging Face folder of GPT-2 124M %s, %s", what,
                   dtype_name(b->dtype));
    figure_add(figure, "MB/s", megabytes / ours, "the same bytes plainly", megabytes / plain, true);
    printf("%-5s %-28s %7.0f MB/s, plainly %7.0f MB/s: %.2f\n", dtype_name(b->dtype), what, megabytes / ours,
           megabytes / plain, plain / ours);
}

static int run(struct bench *b, int rounds, struct muster_error *err)
{
    for (int d = 0; d < 2; d++) {
        b->dtype = d ? DTYPE_BF16 : DTYPE_F32;
        for (int i = 0; i < rounds; i++) {
            if (one_round(b, i, err))
                return -1;
        }
        print_row(b, "export, synced", EXPORT, WRITE, rounds);
        print_row(b, "import, file in memory", IMPORT, READ, rounds);
        print_row(b, "import, file on the disk", IMPORT_COLD, READ_COLD, rounds);
        (void)fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    struct bench b = {0};
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MOST ? ROUNDS_MOST : rounds;
    (void)snprintf(b.folder, sizeof b.folder, "%s/files_bench.XXXXXX", argc > 2 ? argv[2] : ".");
    if (!mkdtemp(b.folder)) {
        perror(b.folder);
        return 1;
    }
    (void)snprintf(b.model, sizeof b.model, "%s/model.safetensors", b.folder);
    (void)snprintf(b.plain, sizeof b.plain, "%s/plain", b.folder);
    struct model *model = architecture_model(&model_124m, &err);
    const struct trainer_options options = {
        .plan = {.strategy = STRATEGY_NO_SHARD,
                 .shape = {1, 8},
                 .mesh = MESH(1, 1, 1),
                 .micro_batches = 1,
                 .train = true},
        .world_size = 1,
        .threads = 1,
        .timeout_ns = 60 * NS_PER_S,
    };
    b.piece = mem_calloc(PLAIN_PIECE, 1);
    b.trainer = model && b.piece ? trainer_create(model, &options, &err) : NULL;
    int failed = !b.trainer || run(&b, rounds, &err);
    if (failed)
        fprintf(stderr, "files_bench: %s\n", err.text[0] ? err.text : "a file could not be written or read");
    trainer_destroy(b.trainer);
    model_destroy(model);
    mem_free(b.piece);
    (void)unlink(b.plain);
    (void)unlink(b.model);
    char config[300];
    (void)snprintf(config, sizeof config, "%s/config.json", b.folder);
    (void)unlink(config);
    (void)rmdir(b.folder);
    return failed;
}
