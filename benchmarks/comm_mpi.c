/* comm_mpi.c - what comm_bench.c measures, of an MPI: the same arguments, rounds and lines. comm.py builds it
 * with the MPI's own mpicc.
 *
 *     mpiexec -n RANKS comm_mpi REPEATS BYTES...
 *
 * The buffers are the program's own memory, as an MPI program's are. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS_MAX = 1001 };
#define WARM_UP_MS 200.0
enum what { GATHER, SCATTER, WHATS };
static const char *const what_names[WHATS] = {"all_gather", "reduce_scatter"};

struct rank {
    int rank, ranks, repeats;
    float *shards, *result; /* (ranks, bytes), (bytes) */
    size_t bytes;           /* size of a shard, now */
};

static double now_ms(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time); /* cannot fail */
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* An error ends the program: that is MPI's default. From the first rank's start to the last one's end, on
 * rank 0. */
static double measure(const struct rank *r, enum what what)
{
    int count = (int)(r->bytes / sizeof(float));
    double first = 0, last = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_ms();
    if (what == GATHER)
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, r->shards, count, MPI_FLOAT, MPI_COMM_WORLD);
    else
        MPI_Reduce_scatter_block(r->shards, r->result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double end = now_ms();
    MPI_Reduce(&start, &first, 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return last - first;
}

/* As comm_bench.c does: the scheduler gives ranks processors of their own. */
static void warm_up(const struct rank *r)
{
    double until = now_ms() + WARM_UP_MS;
    for (int over = 0, all = 0; !all;) {
        (void)measure(r, GATHER);
        over = r->rank == 0 && now_ms() >= until;
        MPI_Allreduce(&over, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
}

static void measure_size(const struct rank *r)
{
    static double took[WHATS][REPEATS_MAX];
    for (int repeat = -2; repeat < r->repeats; repeat++) /* two rounds to warm up */
        for (int what = 0; what < WHATS; what++)
            took[what][repeat < 0 ? 0 : repeat] = measure(r, (enum what)what);
    for (int what = 0; what < WHATS && r->rank == 0; what++) {
        qsort(took[what], (size_t)r->repeats, sizeof took[what][0], by_value);
        printf("%s %zu %.6f\n", what_names[what], r->bytes, took[what][r->repeats / 2]);
    }
}

int main(int argc, char *argv[])
{
    struct rank r = {0};
    size_t largest = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.ranks);
    r.repeats = argc > 2 ? (int)strtol(argv[1], NULL, 10) : 0;
    for (int i = 2; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10);
        largest = bytes > largest ? bytes : largest;
    }
    if (r.repeats < 1 || r.repeats >= REPEATS_MAX || !largest ||
        posix_memalign((void **)&r.shards, 4096, largest * (size_t)r.ranks) ||
        posix_memalign((void **)&r.result, 4096, largest)) {
        fprintf(stderr, "usage: comm_mpi REPEATS BYTES..., and the memory for them\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    memset(r.shards, 0, largest * (size_t)r.ranks); /* its pages are there before the clock runs */
    memset(r.result, 0, largest);
    r.bytes = strtoull(argv[2], NULL, 10);
    warm_up(&r);
    for (int i = 2; i < argc; i++) {
        r.bytes = strtoull(argv[i], NULL, 10);
        measure_size(&r);
    }
    MPI_Finalize();
    free(r.shards);
    free(r.result);
    return 0;
}
