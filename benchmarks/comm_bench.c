/* comm_bench.c - all_gather and reduce_scatter between two ranks over shared memory, against the memory's own
 * copy rate in the same run.
 *
 *     comm_bench [REPEATS]
 *
 * The ranks are two processes. Each figure is the median over REPEATS (15) rounds, in which limits and
 * collectives alternate, so that another program's load hits all alike; a round is from when the first
 * rank starts until when the last is done.
 *
 * The limits: an all_gather in place reads a peer's shard and writes it here, so two memcpys of a shard at
 * once are its limit. A reduce_scatter reads two shards and writes one: its limit is the bare loop out = a +
 * b of the two ranks at once, without a comm. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/env_names.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/comm_reduce.h"
#include "runtime/device/device_cpu.h"
#include "runtime/world/world.h"

enum { RANKS = 2, SIZES = 4, REPEATS_MAX = 1001 };
#define TIMEOUT_NS (60 * NS_PER_S)
static const int64_t shard_bytes[SIZES] = {1 << 20, 4 << 20, 16 << 20, 64 << 20};

enum what { COPY, GATHER, ADD, SCATTER, WHATS };
static const char *const what_names[WHATS] = {"2 x memcpy", "all_gather", "2 x (a + b)", "reduce_scatter"};

/* Of each rank; shared by the two processes, read by rank 0 behind a barrier. */
struct times {
    struct instant start[RANKS][WHATS][REPEATS_MAX], end[RANKS][WHATS][REPEATS_MAX];
};

/* ---- one rank ---- */

struct rank {
    int rank, repeats;
    char port[8];
    struct times *times;
    struct muster_world *world;
    struct device *device;
    struct device_stream *stream;
    struct device_arena arena;
    struct comm *comm;
    int64_t bytes; /* of a shard, now */
};

static const char *get_environment(void *context, const char *name)
{
    const struct rank *r = context;
    static const char *const numbers[RANKS + 1] = {"0", "1", "2"};
    return !strcmp(name, ENV_RANK)          ? numbers[r->rank]
           : !strcmp(name, ENV_WORLD_SIZE)  ? numbers[RANKS]
           : !strcmp(name, ENV_MASTER_ADDR) ? "127.0.0.1"
           : !strcmp(name, ENV_MASTER_PORT) ? r->port
                                            : NULL;
}

/* The buffers of a rank: two shards (what is gathered, what is scattered) and a result. */
static float *shard_at(const struct rank *r, int index)
{
    return (float *)((char *)r->arena.base + index * r->bytes);
}

static void copy_shard(void *argument)
{
    struct rank *r = argument;
    memcpy(shard_at(r, 1 - r->rank), shard_at(r, 2), (size_t)r->bytes);
}

static void add_shards(void *argument)
{
    struct rank *r = argument;
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32};
    const void *sources[RANKS] = {shard_at(r, 0), shard_at(r, 1)};
    comm_reduce(&op, RANKS, shard_at(r, 2), sources, r->bytes / (int64_t)sizeof(float));
}

static int enqueue(struct rank *r, enum what what, struct muster_error *err)
{
    const struct device_ops *ops = device_cpu();
    const struct comm_op op = {.kind = what == GATHER ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER,
                               .dtype = DTYPE_F32,
                               .count = r->bytes / (int64_t)sizeof(float)};
    switch (what) {
    case COPY:
        return ops->launch(r->stream, copy_shard, r);
    case ADD:
        return ops->launch(r->stream, add_shards, r);
    case GATHER:
        return comm_shm()->issue(r->comm, &op, shard_at(r, r->rank), shard_at(r, 0), r->stream, err);
    default:
        return comm_shm()->issue(r->comm, &op, shard_at(r, 0), shard_at(r, 2), r->stream, err);
    }
}

static int open_rank(struct rank *r, struct muster_error *err)
{
    const struct device_ops *ops = device_cpu();
    const struct muster_world_options world = {
        .size = sizeof world, .timeout_ms = 60000, .get_environment = get_environment, .context = r};
    int64_t bytes = 3 * shard_bytes[SIZES - 1];
    if (!(r->world = muster_world_open(&world, err)) || !(r->device = ops->open(r->rank, 1, err)) ||
        ops->arena_create(r->device, MEMORY_COMM, bytes, &r->arena, err))
        return -1;
    memset(r->arena.base, 0, (size_t)bytes); /* its pages are there before the clock runs */
    r->stream = ops->stream_create(r->device, "comm", false, err);
    const struct comm_options options = {.rank = r->rank,
                                         .size = RANKS,
                                         .store = world_store(r->world),
                                         .key = "bench",
                                         .timeout_ns = TIMEOUT_NS,
                                         .device = r->device,
                                         .device_ops = ops,
                                         .arenas = &r->arena,
                                         .arena_count = 1};
    r->comm = r->stream ? comm_shm()->create(&options, err) : NULL;
    return r->comm ? 0 : -1;
}

static void close_rank(struct rank *r)
{
    const struct device_ops *ops = device_cpu();
    comm_shm()->destroy(r->comm);
    ops->stream_destroy(r->stream);
    if (r->device)
        ops->arena_destroy(r->device, &r->arena);
    ops->close(r->device);
    muster_world_close(&r->world);
}

static int meet(struct rank *r, struct muster_error *err)
{
    const struct comm_op barrier = {.kind = COMM_BARRIER};
    if (comm_shm()->issue(r->comm, &barrier, NULL, NULL, r->stream, err))
        return -1;
    return device_cpu()->sync(r->stream, INSTANT_NEVER, err);
}

static int measure(struct rank *r, int repeat, enum what what, struct muster_error *err)
{
    if (meet(r, err))
        return -1;
    struct instant start = clock_now(NULL);
    if (enqueue(r, what, err) || device_cpu()->sync(r->stream, INSTANT_NEVER, err))
        return -1;
    if (repeat >= 0) {
        r->times->start[r->rank][what][repeat] = start;
        r->times->end[r->rank][what][repeat] = clock_now(NULL);
    }
    return 0;
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static double median_ms(const struct times *times, enum what what, int repeats)
{
    static int64_t took[REPEATS_MAX];
    for (int i = 0; i < repeats; i++) {
        struct instant start = instant_min(times->start[0][what][i], times->start[1][what][i]);
        int64_t one = instant_diff_ns(times->end[0][what][i], start);
        int64_t other = instant_diff_ns(times->end[1][what][i], start);
        took[i] = one > other ? one : other;
    }
    qsort(took, (size_t)repeats, sizeof *took, by_value);
    return (double)took[repeats / 2] / (double)NS_PER_MS;
}

static void print_size(const struct rank *r)
{
    double took[WHATS];
    printf("%3lld MB a shard:", (long long)(r->bytes >> 20));
    for (int what = 0; what < WHATS; what++) {
        took[what] = median_ms(r->times, (enum what)what, r->repeats);
        printf("  %s %.3f ms (%.1f GB/s)", what_names[what], took[what],
               (double)r->bytes / took[what] / (double)NS_PER_MS);
    }
    printf("\n                all_gather at %.0f%% of the copies, reduce_scatter at %.0f%% of the sums\n",
           100 * took[COPY] / took[GATHER], 100 * took[ADD] / took[SCATTER]);
}

static int run_rank(struct rank *r, struct muster_error *err)
{
    if (open_rank(r, err))
        return -1;
    for (int size = 0; size < SIZES; size++) {
        r->bytes = shard_bytes[size];
        for (int repeat = -2; repeat < r->repeats; repeat++) { /* two rounds to warm up */
            for (int what = 0; what < WHATS; what++) {
                if (measure(r, repeat, (enum what)what, err))
                    return -1;
            }
        }
        if (meet(r, err))
            return -1;
        if (r->rank == 0)
            print_size(r);
        if (meet(r, err)) /* the next size overwrites the times */
            return -1;
    }
    return 0;
}

/* A port that is free now. */
static int free_port(char out[8])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int failed = bind(fd, (struct sockaddr *)&address, length) ||
                 getsockname(fd, (struct sockaddr *)&address, &length);
    (void)close(fd);                                       /* nothing was written */
    (void)snprintf(out, 8, "%u", ntohs(address.sin_port)); /* at most five digits */
    return failed ? -1 : 0;
}

int main(int argc, char *argv[])
{
    long repeats = argc > 1 ? strtol(argv[1], NULL, 10) : 15;
    struct rank r = {.repeats = (int)repeats, .arena = {.fd = -1}};
    struct muster_error err = {0};
    if (repeats < 1 || repeats >= REPEATS_MAX) {
        fprintf(stderr, "usage: comm_bench [REPEATS], 1 to %d\n", REPEATS_MAX - 1);
        return 2;
    }
    r.times = mmap(NULL, sizeof *r.times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t other = r.times != MAP_FAILED && !free_port(r.port) ? fork() : -1;
    if (other < 0) {
        perror("comm_bench");
        return 1;
    }
    r.rank = other == 0;
    int failed = run_rank(&r, &err);
    if (failed)
        fprintf(stderr, "comm_bench: rank %d: %s\n", r.rank, err.text);
    close_rank(&r);
    int status = 0;
    if (other > 0 && waitpid(other, &status, 0) < 0)
        perror("comm_bench: waitpid");
    return failed || status ? 1 : 0;
}
