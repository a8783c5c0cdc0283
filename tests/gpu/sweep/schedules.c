/* schedules.c - the order in which streams run changes no bit: a training run of 3 steps on 2 ranks under
 * many shuffled schedules of the fake runtime, and with all work as early and as late as events allow.
 *
 *   gpu_schedules [--graphs] [nccl:N] [host:N]   so many shuffled ones (default nccl:70 host:30)
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

enum { JOBS = 4, SCHEDULES_MOST = 4096 };

static struct schedule {
    const char *comm, *order;
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

static void add(const char *comm, const char *order, int seed)
{
    if (count < SCHEDULES_MOST)
        schedules[count++] = (struct schedule){comm, order, seed};
}

static void add_all(const char *comm, int shuffled)
{
    add(comm, "early", 0);
    add(comm, "late", 0);
    for (int seed = 0; seed < shuffled; seed++)
        add(comm, "shuffled", seed);
}

/* One run under the schedule; its weights. */
static bool run_one(const struct schedule *schedule, int number, const char *where, struct buffer *weights)
{
    static struct sweep_rank ranks[SWEEP_RANKS];
    char path[SWEEP_PATH + 32], seed[16];
    const struct sweep_run run = {.folder = where,
                                  .comm = schedule->comm,
                                  .graphs = graphs,
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

/* For each comm: sums of the two differ in their rounding. */
enum { COMMS = 2 };
static const char *const comms[COMMS] = {"nccl", "host"};

static void work(int job, const struct buffer wanted_of[COMMS])
{
    char where[SWEEP_PATH];
    (void)snprintf(where, sizeof where, "%s/%d", folder, job);
    for (int i; (i = atomic_fetch_add(&shared->next, 1)) < count;) {
        scope_buffer weights = {0};
        const bool ran = run_one(&schedules[i], i + 1, where, &weights);
        const struct buffer *wanted = &wanted_of[strcmp(schedules[i].comm, comms[0]) != 0];
        if (ran && weights.length == wanted->length && !memcmp(weights.data, wanted->data, wanted->length))
            continue;
        atomic_fetch_add(&shared->wrong, 1);
        printf("WRONG comm %s, %s, seed %d: %s\n", schedules[i].comm, schedules[i].order, schedules[i].seed,
               ran ? "other weights" : "it failed");
    }
    (void)fflush(stdout);
    _exit(0);
}

static int run_all(const struct buffer wanted[COMMS])
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
    printf("%d schedules: %d with other weights than the first of their comm\n", count, shared->wrong);
    return shared->wrong || broken;
}

/* The weights of the first schedule of each comm. */
static bool find_wanted(struct buffer wanted[COMMS])
{
    for (int comm = 0; comm < COMMS; comm++) {
        const struct schedule first = {comms[comm], "early", 0};
        if (!run_one(&first, SCHEDULES_MOST + 1 + comm, folder, &wanted[comm]))
            return false;
    }
    return true;
}

int main(int argc, char *argv[])
{
    struct buffer wanted[COMMS] = {{0}};
    const char *sanitized = getenv("MUSTER_SANITIZED");
    int given = 0, number;
    for (int i = 1; i < argc; i++) {
        graphs |= !strcmp(argv[i], "--graphs");
        for (int comm = 0; comm < COMMS; comm++) {
            if (strncmp(argv[i], comms[comm], 4) != 0 || sscanf(argv[i] + 4, ":%d", &number) != 1)
                continue;
            add_all(comms[comm], number);
            given++;
        }
    }
    if (!given) {
        add_all("nccl", 70);
        add_all("host", 30);
    }
    if (sanitized && *sanitized)
        limit_ns *= 6;
    (void)snprintf(folder, sizeof folder, "/dev/shm/gpu-schedules-XXXXXX");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(folder)) {
        perror("gpu_schedules");
        return 2;
    }
    int failed = sweep_load() || !(store = sweep_store()) || !find_wanted(wanted) || run_all(wanted);
    for (int comm = 0; comm < COMMS; comm++)
        buffer_free(&wanted[comm]);
    if (!sweep_folder(folder)) /* empty but for two files */
        (void)0;
    return failed ? 1 : 0;
}
