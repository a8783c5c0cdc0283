/* schedules.c - the order in which streams run changes no bit: training runs of 3 steps on 2 ranks, with
 * plans of four layers, so that operations wait for several others, under many shuffled schedules of the fake
 * runtime, and with all work as early and as late as events allow.
 *
 *   gpu_schedules [--graphs] [VARIANT:N ...]   so many shuffles of a row of `variants`; without any: of
 *                                              each row the number there
 *
 * The fake's threads are real ones, so that "early" is another schedule each time; a seed chooses which
 * pieces of work wait until something waits for them. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/gpu/sweep/sweep_pair.h"

enum { JOBS = 4, SCHEDULES_MOST = 4096, NOT_QUICK = -1 /* a row that has to be asked for */ };

/* A group a layer; smaller ones would be merged into two groups. */
#define FOUR "model.layers=4", "model.channels=32"

/* Sums of two comms differ in their rounding, as do models: each row has weights of its own. */
static const struct variant {
    const char *name, *comm;
    int shuffled;
    const char *sets[SWEEP_SETS];
} variants[] = {
    {"nccl", "nccl", 5, {FOUR}},
    {"host", "host", 2, {FOUR}},
    {"llama", "nccl", 1, {FOUR, "model.architecture=llama", "training.dtype=bf16"}},
    {"stages", "nccl", 0, {FOUR, "mesh.pipeline=2", "mesh.schedule=interleaved", "training.dtype=bf16"}},
    {"staged", "host", NOT_QUICK, {FOUR, "mesh.pipeline=2"}},
    {"fp16",
     "nccl",
     1,
     {FOUR, "training.strategy=SHARD_GRAD_OP", "training.dtype=fp16", "training.loss_scale=128"}},
    {"values", "nccl", 0, {FOUR, "training.dtype=bf16", "training.values=dtype"}},
    {"scaled",
     "nccl",
     NOT_QUICK,
     {FOUR, "model.architecture=llama", "training.dtype=fp16", "training.initial_scale_power=8",
      "training.values=dtype"}},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static struct schedule {
    int variant;
    const char *order;
    int seed;
} schedules[SCHEDULES_MOST];
static int count;

static char folder[SWEEP_PATH - 32];
static uint16_t store;
static int64_t limit_ns = 60 * NS_PER_S;
static bool graphs;
static struct shared {
    _Atomic(int) next, wrong;
} * shared;

static void add(int variant, const char *order, int seed)
{
    if (count < SCHEDULES_MOST)
        schedules[count++] = (struct schedule){variant, order, seed};
}

static void add_all(int variant, int shuffled)
{
    add(variant, "early", 0);
    add(variant, "late", 0);
    for (int seed = 0; seed < shuffled; seed++)
        add(variant, "shuffled", seed);
}

/* One run under the schedule; its weights. alone: each piece of work is waited for, on all streams. */
static bool run_one(const struct schedule *schedule, int number, const char *where, bool alone,
                    struct buffer *weights)
{
    static struct sweep_rank ranks[SWEEP_RANKS];
    char path[SWEEP_PATH + 32], seed[16];
    const char *sets[SWEEP_SETS] = {NULL};
    memcpy(sets, variants[schedule->variant].sets, sizeof sets);
    for (int i = 0; alone && i < SWEEP_SETS; i++) {
        if (sets[i])
            continue;
        sets[i] = "training.sync_errors=true";
        break;
    }
    const struct sweep_run run = {.folder = where,
                                  .comm = variants[schedule->variant].comm,
                                  .sets = sets,
                                  .graphs = graphs && !alone,
                                  .store = store,
                                  .number = number,
                                  .limit_ns = limit_ns};
    (void)snprintf(path, sizeof path, "%s/weights", where);
    (void)snprintf(seed, sizeof seed, "%d", schedule->seed);
    setenv("FAKE_CUDA_SCHEDULE", schedule->order, 1); /* the ranks', which are forks */
    setenv("FAKE_CUDA_SEED", seed, 1);
    if (sweep_folder(where))
        return false;
    sweep_pair(&run, ranks);
    bool fine = true;
    for (int rank = 0; rank < SWEEP_RANKS; rank++)
        fine = fine && ranks[rank].ended && !ranks[rank].status && !strstr(ranks[rank].said, "Sanitizer");
    if (fine && !io_read_file(path, 64 << 20, weights, NULL))
        return true;
    for (int rank = 0; rank < SWEEP_RANKS; rank++)
        printf("---- rank %d, status %x:\n%s", rank, (unsigned)ranks[rank].status, ranks[rank].said);
    return false;
}

static void work(int job, const struct buffer wanted_of[VARIANTS])
{
    char where[SWEEP_PATH];
    (void)snprintf(where, sizeof where, "%s/%d", folder, job);
    for (int i; (i = atomic_fetch_add(&shared->next, 1)) < count;) {
        scope_buffer weights = {0};
        const bool ran = run_one(&schedules[i], i + 1, where, false, &weights);
        const struct buffer *wanted = &wanted_of[schedules[i].variant];
        if (ran && weights.length == wanted->length && !memcmp(weights.data, wanted->data, wanted->length))
            continue;
        atomic_fetch_add(&shared->wrong, 1);
        printf("WRONG %s, %s, seed %d: %s\n", variants[schedules[i].variant].name, schedules[i].order,
               schedules[i].seed, ran ? "other weights" : "it failed");
    }
    (void)fflush(stdout);
    _exit(0);
}

static int run_all(const struct buffer wanted[VARIANTS])
{
    int broken = 0, status;
    (void)fflush(stdout);
    for (int job = 0; job < JOBS; job++) {
        const pid_t pid = fork();
        if (pid == 0)
            work(job, wanted);
        broken += pid < 0;
    }
    for (int job = 0; job < JOBS; job++) {
        pid_t pid; /* the store is a child, too, and stays */
        do
            pid = wait(&status);
        while (pid < 0 && errno == EINTR);
        broken += pid < 0 || status;
    }
    printf("%d schedules: %d with other weights than work that runs alone\n", count, shared->wrong);
    return shared->wrong || broken;
}

/* The weights of each variant that has schedules, of a run where nothing runs next to anything: no wait that
 * is missing has an effect there. */
static bool find_wanted(struct buffer wanted[VARIANTS])
{
    for (int i = 0; i < count; i++) {
        const int variant = schedules[i].variant;
        const struct schedule first = {variant, "early", 0};
        if (!wanted[variant].length &&
            !run_one(&first, SCHEDULES_MOST + 1 + variant, folder, true, &wanted[variant]))
            return false;
    }
    return true;
}

int main(int argc, char *argv[])
{
    struct buffer wanted[VARIANTS] = {{0}};
    const char *sanitized = getenv("MUSTER_SANITIZED");
    int number;
    for (int i = 1; i < argc; i++) {
        graphs |= !strcmp(argv[i], "--graphs");
        for (int variant = 0; variant < VARIANTS; variant++) {
            const size_t length = strlen(variants[variant].name);
            if (!strncmp(argv[i], variants[variant].name, length) &&
                sscanf(argv[i] + length, ":%d", &number) == 1)
                add_all(variant, number);
        }
    }
    for (int variant = 0; variant < VARIANTS && argc - graphs == 1; variant++)
        if (variants[variant].shuffled != NOT_QUICK)
            add_all(variant, variants[variant].shuffled);
    if (sanitized && *sanitized)
        limit_ns *= 6;
    (void)snprintf(folder, sizeof folder, "/dev/shm/gpu-schedules-XXXXXX");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(folder)) {
        perror("gpu_schedules");
        return 2;
    }
    int failed = sweep_load() || !(store = sweep_store()) || !find_wanted(wanted) || run_all(wanted);
    for (int variant = 0; variant < VARIANTS; variant++)
        buffer_free(&wanted[variant]);
    if (!sweep_folder(folder)) /* empty but for two files */
        (void)0;
    return failed ? 1 : 0;
}
