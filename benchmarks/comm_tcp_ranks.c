/* comm_tcp_ranks.c - processor time and time of an all_reduce over TCP, for comm_tcp.py.
 *
 *     comm_tcp_ranks RANKS REPEATS BYTES...
 *
 * Ranks are threads that run the operation themselves, all on loopback. A line "BYTES PROCESSOR_US
 * ELAPSED_US" for each size: means over the repeats, of all ranks and of rank 0. Values are doubles. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/base/clock.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device_cpu.h"

enum { RANKS_MAX = 256, SIZES_MAX = 16 };

struct all {
    int ranks, repeats, sizes;
    int64_t bytes[SIZES_MAX];
    double processor_us[SIZES_MAX][RANKS_MAX], elapsed_us[SIZES_MAX];
    struct kv_store store;
    pthread_barrier_t meeting;
};

struct one {
    struct all *all;
    int rank;
    pthread_t thread;
};

static double microseconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now); /* both clocks exist */
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int reduce_often(struct comm *comm, int64_t bytes, int repeats, struct muster_error *err)
{
    const struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .dtype = DTYPE_F64, .count = bytes / (int64_t)sizeof(double)};
    double *values = calloc(2, (size_t)bytes);
    int failed = values ? 0 : -1;
    for (int64_t i = 0; values && i < op.count; i++)
        values[i] = 1.0 / (double)(i + 1);
    for (int i = 0; !failed && i < repeats; i++)
        failed = comm_tcp()->run(comm, &op, values, values + op.count, err);
    free(values);
    return failed;
}

static int measure(struct one *one, struct comm *comm, int size, struct muster_error *err)
{
    struct all *all = one->all;
    if (reduce_often(comm, all->bytes[size], 2, err))
        return -1;
    (void)pthread_barrier_wait(&all->meeting);
    const double processor = microseconds(CLOCK_THREAD_CPUTIME_ID), start = microseconds(CLOCK_MONOTONIC);
    if (reduce_often(comm, all->bytes[size], all->repeats, err))
        return -1;
    all->processor_us[size][one->rank] = (microseconds(CLOCK_THREAD_CPUTIME_ID) - processor) / all->repeats;
    if (one->rank == 0)
        all->elapsed_us[size] = (microseconds(CLOCK_MONOTONIC) - start) / all->repeats;
    return 0;
}

static void *run_rank(void *argument)
{
    struct one *one = argument;
    struct muster_error err = {0};
    struct device *device = device_cpu()->open(one->rank, 1, &err);
    const struct comm_options options = {.rank = one->rank,
                                         .size = one->all->ranks,
                                         .store = &one->all->store,
                                         .key = "bench",
                                         .timeout_ns = 120 * NS_PER_S,
                                         .device = device,
                                         .device_ops = device_cpu()};
    struct comm *comm = device ? comm_tcp()->create(&options, &err) : NULL;
    int failed = comm ? 0 : -1;
    for (int size = 0; !failed && size < one->all->sizes; size++)
        failed = measure(one, comm, size, &err);
    if (failed) { /* the others wait at a barrier */
        fprintf(stderr, "comm_tcp_ranks: rank %d: %s\n", one->rank, err.text);
        exit(1);
    }
    comm_tcp()->destroy(comm);
    device_cpu()->close(device);
    return NULL;
}

static int read_arguments(struct all *all, int argc, char **argv)
{
    all->ranks = argc > 3 ? atoi(argv[1]) : 0;
    all->repeats = argc > 3 ? atoi(argv[2]) : 0;
    for (int i = 3; i < argc && all->sizes < SIZES_MAX; i++)
        all->bytes[all->sizes++] = atoll(argv[i]) / 8 * 8;
    return all->ranks < 2 || all->ranks > RANKS_MAX || all->repeats < 1 ? -1 : 0;
}

int main(int argc, char **argv)
{
    static struct all all;
    static struct one ranks[RANKS_MAX];
    struct kv_memory *memory = kv_memory_create(NULL);
    if (!memory || read_arguments(&all, argc, argv)) {
        fprintf(stderr, "usage: comm_tcp_ranks RANKS REPEATS BYTES...: 2 to %d ranks\n", RANKS_MAX);
        return 2;
    }
    all.store = kv_memory_store(memory);
    (void)pthread_barrier_init(&all.meeting, NULL, (unsigned)all.ranks); /* cannot fail for a count above 0 */
    for (int rank = 0; rank < all.ranks; rank++) {
        ranks[rank] = (struct one){.all = &all, .rank = rank};
        if (pthread_create(&ranks[rank].thread, NULL, run_rank, &ranks[rank])) {
            perror("comm_tcp_ranks");
            return 1;
        }
    }
    for (int rank = 0; rank < all.ranks; rank++)
        (void)pthread_join(ranks[rank].thread, NULL); /* it was started */
    for (int size = 0; size < all.sizes; size++) {
        double sum = 0;
        for (int rank = 0; rank < all.ranks; rank++)
            sum += all.processor_us[size][rank];
        printf("%lld %.2f %.2f\n", (long long)all.bytes[size], sum / all.ranks, all.elapsed_us[size]);
    }
    kv_memory_destroy(memory);
    return 0;
}
