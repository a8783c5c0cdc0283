/* comm_bench.c - all_gather and reduce_scatter of ranks on one machine over shared memory, and the
 * limits of the memory itself. comm.py runs it in turns with its peers.
 *
 *     comm_bench RANKS REPEATS BYTES...
 *
 * BYTES are of one rank's shard. Each rank is a process. A line "WHAT BYTES MEDIAN_MS" for each figure, over
 * REPEATS rounds in which limits and collectives alternate, so that another program's load hits all alike; a
 * round is from when the first rank starts until when the last is done. Collectives run on the calling
 * thread, as an MPI's blocking ones do; "stream_" before a name: on a stream's thread, as a trainer's do, and
 * the caller waits.
 *
 * The limits: an all_gather in place reads the peers' shards and writes them here, so as many memcpys by each
 * rank, all at once, are its limit ("copy"). A reduce_scatter reads a shard of each rank and writes one: its
 * limit is the bare loop out = a + b + ... of all ranks at once, without a comm ("sum"). */
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

enum { RANKS_MAX = 16, REPEATS_MAX = 1001, SIZES_MAX = 16 };
#define WARM_UP_NS (200 * NS_PER_MS) /* until the scheduler has given ranks processors of their own */
#define BYTES_MAX  (INT64_C(1) << 30)
#define TIMEOUT_NS (60 * NS_PER_S)

enum what { COPY, GATHER, SUM, SCATTER, STREAM_GATHER, STREAM_SCATTER, WHATS };
static const char *const what_names[WHATS] = {"copy",           "all_gather",        "sum",
                                              "reduce_scatter", "stream_all_gather", "stream_reduce_scatter"};

/* Shared by the processes, read by rank 0 after a barrier. */
struct times {
    struct instant start[RANKS_MAX][WHATS][REPEATS_MAX], end[RANKS_MAX][WHATS][REPEATS_MAX];
};

/* ---- one rank ---- */

struct rank {
    int rank, ranks, repeats, sizes;
    int64_t shards[SIZES_MAX]; /* bytes */
    char port[8], number[2][8];
    struct times *times;
    struct muster_world *world;
    struct device *device;
    struct device_stream *stream;
    struct device_arena arena;
    struct comm *comm;
    int64_t bytes; /* size of a shard, now */
};

static const char *get_environment(void *context, const char *name)
{
    const struct rank *r = context;
    return !strcmp(name, ENV_RANK)          ? r->number[0]
           : !strcmp(name, ENV_WORLD_SIZE)  ? r->number[1]
           : !strcmp(name, ENV_MASTER_ADDR) ? "127.0.0.1"
           : !strcmp(name, ENV_MASTER_PORT) ? r->port
                                            : NULL;
}

/* The buffers of a rank: a shard for each rank (input of either collective), a result, and as many
 * shards again that stand for the peers' memory in the limits. */
static float *shard_at(const struct rank *r, int index)
{
    return (float *)((char *)r->arena.base + index * r->bytes);
}

static void copy_shards(const struct rank *r)
{
    for (int other = 0; other < r->ranks; other++)
        if (other != r->rank)
            memcpy(shard_at(r, other), shard_at(r, r->ranks + 1 + other), (size_t)r->bytes);
}

static void add_shards(const struct rank *r)
{
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32};
    const void *sources[RANKS_MAX];
    for (int other = 0; other < r->ranks; other++)
        sources[other] = shard_at(r, other);
    comm_reduce(&op, r->ranks, shard_at(r, r->ranks), sources, r->bytes / (int64_t)sizeof(float));
}

/* As a trainer does it: the stream's thread moves the data, and the caller waits. */
static int run_on_stream(struct rank *r, const struct comm_op *op, const void *send, void *recv,
                         struct muster_error *err)
{
    if (comm_shm()->issue(r->comm, op, send, recv, r->stream, err))
        return -1;
    return device_cpu()->sync(r->stream, INSTANT_NEVER, err);
}

static int run_once(struct rank *r, enum what what, struct muster_error *err)
{
    bool gather = what == GATHER || what == STREAM_GATHER;
    const struct comm_op op = {.kind = gather ? COMM_ALL_GATHER : COMM_REDUCE_SCATTER,
                               .dtype = DTYPE_F32,
                               .count = r->bytes / (int64_t)sizeof(float)};
    const void *send = shard_at(r, gather ? r->rank : 0);
    void *recv = shard_at(r, gather ? 0 : r->ranks);
    switch (what) {
    case COPY:
        copy_shards(r);
        return 0;
    case SUM:
        add_shards(r);
        return 0;
    case GATHER:
    case SCATTER:
        return comm_shm()->run(r->comm, &op, send, recv, err);
    default:
        return run_on_stream(r, &op, send, recv, err);
    }
}

static int open_rank(struct rank *r, struct muster_error *err)
{
    const struct device_ops *ops = device_cpu();
    const struct muster_world_options world = {
        .size = sizeof world, .timeout_ms = 60000, .get_environment = get_environment, .context = r};
    int64_t bytes = 0;
    for (int size = 0; size < r->sizes; size++)
        bytes = r->shards[size] > bytes ? r->shards[size] : bytes;
    bytes *= 2 * r->ranks + 1;
    (void)snprintf(r->number[0], sizeof r->number[0], "%d", r->rank);
    (void)snprintf(r->number[1], sizeof r->number[1], "%d", r->ranks);
    if (!(r->world = muster_world_open(&world, err)) || !(r->device = ops->open(r->rank, 1, err)) ||
        ops->arena_create(r->device, MEMORY_COMM, bytes, &r->arena, err))
        return -1;
    memset(r->arena.base, 0, (size_t)bytes); /* its pages are there before the clock runs */
    r->stream = ops->stream_create(r->device, "comm", false, err);
    const struct comm_options options = {.rank = r->rank,
                                         .size = r->ranks,
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
    return comm_shm()->run(r->comm, &barrier, NULL, NULL, err);
}

static int measure(struct rank *r, int repeat, enum what what, struct muster_error *err)
{
    if (meet(r, err))
        return -1;
    struct instant start = clock_now(NULL);
    if (run_once(r, what, err))
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

static double median_ms(const struct rank *r, enum what what)
{
    static int64_t took[REPEATS_MAX];
    const struct times *times = r->times;
    for (int i = 0; i < r->repeats; i++) {
        struct instant start = times->start[0][what][i];
        for (int rank = 1; rank < r->ranks; rank++)
            start = instant_min(start, times->start[rank][what][i]);
        took[i] = 0;
        for (int rank = 0; rank < r->ranks; rank++) {
            int64_t one = instant_diff_ns(times->end[rank][what][i], start);
            took[i] = one > took[i] ? one : took[i];
        }
    }
    qsort(took, (size_t)r->repeats, sizeof *took, by_value);
    return (double)took[r->repeats / 2] / (double)NS_PER_MS;
}

static void print_size(const struct rank *r)
{
    for (int what = 0; what < WHATS; what++)
        printf("%s %lld %.6f\n", what_names[what], (long long)r->bytes, median_ms(r, (enum what)what));
}

/* Collectives until rank 0 has seen enough of them. */
static int warm_up(struct rank *r, struct muster_error *err)
{
    const struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .dtype = DTYPE_I32, .reduction = REDUCE_MAX, .count = 1};
    struct instant until = instant_add(clock_now(NULL), WARM_UP_NS);
    for (int32_t over = 0; !over;) {
        over = r->rank == 0 && instant_reached(clock_now(NULL), until);
        if (run_once(r, GATHER, err) || comm_shm()->run(r->comm, &op, &over, &over, err))
            return -1;
    }
    return 0;
}

static int measure_size(struct rank *r, enum what first, enum what last, struct muster_error *err)
{
    for (int repeat = -2; repeat < r->repeats; repeat++) { /* two rounds to warm up */
        for (int what = (int)first; what <= (int)last; what++) {
            if (measure(r, repeat, (enum what)what, err))
                return -1;
        }
    }
    return 0;
}

static int run_rank(struct rank *r, struct muster_error *err)
{
    r->bytes = r->shards[0];
    if (open_rank(r, err) || warm_up(r, err))
        return -1;
    for (int size = 0; size < r->sizes; size++) {
        r->bytes = r->shards[size];
        if (measure_size(r, COPY, SCATTER, err) || measure_size(r, STREAM_GATHER, STREAM_SCATTER, err) ||
            meet(r, err))
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

static int read_arguments(struct rank *r, int argc, char *argv[])
{
    char *end;
    if (argc < 4 || argc > 3 + SIZES_MAX)
        return -1;
    r->ranks = (int)strtol(argv[1], NULL, 10);
    r->repeats = (int)strtol(argv[2], NULL, 10);
    for (int i = 3; i < argc; i++) {
        int64_t bytes = strtoll(argv[i], &end, 10);
        if (*end || bytes < 64 || bytes % 64 || bytes > BYTES_MAX)
            return -1;
        r->shards[r->sizes++] = bytes;
    }
    return r->ranks < 2 || r->ranks > RANKS_MAX || r->repeats < 1 || r->repeats >= REPEATS_MAX ? -1 : 0;
}

/* Gives each further rank a process; 0 in rank 0, whose children are counted. -1: fork failed. */
static int start_ranks(struct rank *r)
{
    for (int rank = 1; rank < r->ranks; rank++) {
        pid_t pid = fork();
        if (pid < 0)
            return -1;
        if (pid == 0) {
            r->rank = rank;
            return 0;
        }
    }
    return 0;
}

int main(int argc, char *argv[])
{
    struct rank r = {.arena = {.fd = -1}};
    struct muster_error err = {0};
    if (read_arguments(&r, argc, argv)) {
        fprintf(stderr, "usage: comm_bench RANKS REPEATS BYTES...: 2 to %d, 1 to %d, multiples of 64\n",
                RANKS_MAX, REPEATS_MAX - 1);
        return 2;
    }
    r.times = mmap(NULL, sizeof *r.times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r.times == MAP_FAILED || free_port(r.port) || start_ranks(&r)) {
        perror("comm_bench");
        return 1;
    }
    int failed = run_rank(&r, &err);
    if (failed)
        fprintf(stderr, "comm_bench: rank %d: %s\n", r.rank, err.text);
    close_rank(&r);
    for (int status = 0; r.rank == 0 && wait(&status) > 0;)
        failed |= status;
    return failed ? 1 : 0;
}
