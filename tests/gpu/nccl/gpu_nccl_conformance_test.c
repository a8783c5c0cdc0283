/* gpu_nccl_conformance_test.c - this project's beliefs about NCCL, as a program for the fake and for the
 * real library alike: whichever libnccl.so.2 and libcudart.so.13 the loader finds.
 *
 * usage: gpu_nccl_conformance facts | RANKS
 *   facts   version, texts and unique ids, which need no driver
 *   RANKS   all of it, with so many processes (a GPU each, or one GPU where the library allows that); on the
 * fake also its refusals, where NCCL would hang or corrupt */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "proto/base/clock.h"
#include "runtime/cuda/nccl_library.h"

enum { RANKS_MAX = 8, COUNT = 3001, BYTES = COUNT * 8 * RANKS_MAX };

struct shared {
    ncclUniqueId ids[16];
    _Atomic(int) ready, met;
};

struct rank {
    const struct nccl_calls *calls;
    struct shared *shared;
    int rank, size, made; /* made: communicators so far */
    ncclComm_t comm;
    cudaStream_t stream;
    char *send, *recv, *host; /* BYTES each; device, device, host */
    bool fake;
};

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "rank %d, line %d: %s: %s\n", r->rank, __LINE__, #condition,                     \
                    r->calls->last_error(NULL));                                                             \
            return -1;                                                                                       \
        }                                                                                                    \
    } while (0)

static bool is_fake(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    return library && dlsym(library, "fake_nccl_living");
}

/* ---- without a driver ---- */

/* The config has the layout that the library expects; without a driver the communicator is refused then, with
 * a reason, and nothing is left to be destroyed. */
static int refused_without_a_driver(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    int driver = 0;
    if (is_fake() || (cudaDriverGetVersion(&driver) == cudaSuccess && !access("/dev/nvidiactl", F_OK)))
        return 0;
    config.blocking = 0;
    CHECK(r->calls->unique_id(&id) == ncclSuccess);
    ncclResult_t result = r->calls->init(&comm, 1, id, 0, &config);
    CHECK(result != ncclSuccess && result != ncclInProgress && result != ncclInvalidArgument);
    CHECK(strlen(r->calls->last_error(NULL)) > 3);
    printf("without a driver: %s\n", r->calls->last_error(NULL));
    return 0;
}

static int facts(struct rank *r)
{
    int version = 0;
    ncclUniqueId one, two;
    const char *wants_real = getenv("MUSTER_REAL_LIBRARIES");
    CHECK(!wants_real || !is_fake());
    CHECK(r->calls->get_version(&version) == ncclSuccess && version >= 21800);
    for (int result = 0; result < ncclNumResults; result++)
        CHECK(strlen(r->calls->error_string((ncclResult_t)result)) > 3);
    CHECK(strcmp(r->calls->error_string(ncclSuccess), "no error") == 0);
    CHECK(r->calls->unique_id(&one) == ncclSuccess && r->calls->unique_id(&two) == ncclSuccess);
    CHECK(memcmp(&one, &two, sizeof one) != 0);
    CHECK(!refused_without_a_driver(r));
    printf("NCCL %d: version, texts and unique ids are as expected\n", version);
    return 0;
}

/* ---- helpers ---- */

static bool meet(struct rank *r)
{
    int all = (r->shared->met++ / r->size + 1) * r->size;
    struct instant limit = instant_add(clock_now(NULL), 60 * NS_PER_S);
    while (r->shared->met < all && !instant_reached(clock_now(NULL), limit))
        clock_sleep_until(instant_add(clock_now(NULL), 200 * NS_PER_US));
    return r->shared->met >= all;
}

/* The state that is not ncclInProgress any more. */
static ncclResult_t settled(struct rank *r, ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    struct instant limit = instant_add(clock_now(NULL), 60 * NS_PER_S);
    while (state == ncclInProgress && !instant_reached(clock_now(NULL), limit)) {
        if (r->calls->async_error(comm, &state) != ncclSuccess)
            return ncclInternalError;
        clock_sleep_until(instant_add(clock_now(NULL), 100 * NS_PER_US));
    }
    return state;
}

static bool fine(struct rank *r, ncclResult_t result)
{
    return result == ncclSuccess || (result == ncclInProgress && settled(r, r->comm) == ncclSuccess);
}

static int make(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    int number = r->made++;
    if (r->rank == 0)
        CHECK(r->calls->unique_id(&r->shared->ids[number]) == ncclSuccess);
    CHECK(meet(r));
    ncclResult_t result = r->calls->init(&r->comm, r->size, r->shared->ids[number], r->rank, &config);
    CHECK(result == ncclSuccess || result == ncclInProgress);
    /* NCCL's thread may be storing it again */
    CHECK(settled(r, __atomic_load_n(&r->comm, __ATOMIC_ACQUIRE)) == ncclSuccess);
    return 0;
}

static int end(struct rank *r)
{
    CHECK(fine(r, r->calls->finalize(r->comm)));
    CHECK(r->calls->destroy(r->comm) == ncclSuccess);
    return 0;
}

/* Small whole numbers, so that every order of additions gives the same in every type. */
static int number_at(int rank, int64_t i)
{
    return (int)((i * 7 + rank * 3) % 13);
}

static void put(enum dtype dtype, void *to, int64_t i, double value)
{
    kernels_ref_f64()->cast((char *)to + i * dtype_size(dtype), dtype, &value, DTYPE_F64, 1, NULL);
}
static double get(enum dtype dtype, const void *from, int64_t i)
{
    double value = 0;
    kernels_ref_f64()->cast(&value, DTYPE_F64, (const char *)from + i * dtype_size(dtype), dtype, 1, NULL);
    return value;
}

static int fill(struct rank *r, enum dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        put(dtype, r->host, i, number_at(r->rank, i));
    CHECK(cudaMemcpy(r->send, r->host, (size_t)(count * dtype_size(dtype)), cudaMemcpyHostToDevice) ==
          cudaSuccess);
    return 0;
}

/* What element i of the result is. */
typedef double expected(const struct rank *r, int64_t i);

static int check(struct rank *r, const char *what, enum dtype dtype, const void *from, int64_t count,
                 expected *value)
{
    CHECK(cudaStreamSynchronize(r->stream) == cudaSuccess);
    CHECK(cudaMemcpy(r->host, from, (size_t)(count * dtype_size(dtype)), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
    for (int64_t i = 0; i < count; i++) {
        if (get(dtype, r->host, i) != value(r, i)) {
            fprintf(stderr, "rank %d: %s of %s: element %lld is %g, not %g\n", r->rank, what,
                    dtype_name(dtype), (long long)i, get(dtype, r->host, i), value(r, i));
            return -1;
        }
    }
    return 0;
}

static double gathered(const struct rank *r, int64_t i)
{
    (void)r;
    return number_at((int)(i / COUNT), i % COUNT);
}
static double summed(const struct rank *r, int64_t i)
{
    int sum = 0;
    for (int rank = 0; rank < r->size; rank++)
        sum += number_at(rank, i);
    return sum;
}
static double scattered(const struct rank *r, int64_t i)
{
    return summed(r, r->rank * COUNT + i);
}
static double greatest(const struct rank *r, int64_t i)
{
    int most = 0;
    for (int rank = 0; rank < r->size; rank++)
        most = number_at(rank, i) > most ? number_at(rank, i) : most;
    return most;
}
static double of_last(const struct rank *r, int64_t i)
{
    return number_at(r->size - 1, i);
}
static double of_previous(const struct rank *r, int64_t i)
{
    return number_at((r->rank + r->size - 1) % r->size, i);
}
static double exchanged(const struct rank *r, int64_t i)
{
    return number_at((int)(i / COUNT), r->rank * COUNT + i % COUNT);
}

/* ---- operations ---- */

static int collectives(struct rank *r)
{
    static const struct {
        enum dtype dtype;
        ncclDataType_t type;
    } types[] = {{DTYPE_F32, ncclFloat32}, {DTYPE_F64, ncclFloat64},   {DTYPE_I32, ncclInt32},
                 {DTYPE_F16, ncclFloat16}, {DTYPE_BF16, ncclBfloat16}, {DTYPE_U8, ncclUint8}};
    const struct nccl_calls *n = r->calls;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        enum dtype d = types[t].dtype;
        ncclDataType_t type = types[t].type;
        size_t part = (size_t)(COUNT * dtype_size(d)), mine = (size_t)r->rank * part;
        CHECK(!fill(r, d, COUNT * r->size));
        CHECK(fine(r, n->all_gather(r->send, r->recv, COUNT, type, r->comm, r->stream)));
        CHECK(!check(r, "all_gather", d, r->recv, COUNT * r->size, gathered));
        CHECK(fine(r, n->all_reduce(r->send, r->recv, COUNT, type, ncclSum, r->comm, r->stream)));
        CHECK(!check(r, "all_reduce", d, r->recv, COUNT, summed));
        CHECK(fine(r, n->all_reduce(r->send, r->recv, COUNT, type, ncclMax, r->comm, r->stream)));
        CHECK(!check(r, "maximum", d, r->recv, COUNT, greatest));
        CHECK(fine(r, n->broadcast(r->send, r->recv, COUNT, type, r->size - 1, r->comm, r->stream)));
        CHECK(!check(r, "broadcast", d, r->recv, COUNT, of_last));
        CHECK(fine(r, n->reduce_scatter(r->send, r->recv, COUNT, type, ncclSum, r->comm, r->stream)));
        CHECK(!check(r, "reduce_scatter", d, r->recv, COUNT, scattered));
        /* in place */
        CHECK(fine(r, n->reduce_scatter(r->send, r->send + mine, COUNT, type, ncclSum, r->comm, r->stream)));
        CHECK(!check(r, "reduce_scatter in place", d, r->send + mine, COUNT, scattered));
        CHECK(!fill(r, d, COUNT));
        CHECK(cudaMemcpy(r->recv + mine, r->host, part, cudaMemcpyHostToDevice) == cudaSuccess);
        CHECK(fine(r, n->all_gather(r->recv + mine, r->recv, COUNT, type, r->comm, r->stream)));
        CHECK(!check(r, "all_gather in place", d, r->recv, COUNT * r->size, gathered));
        CHECK(fine(r, n->all_reduce(r->send, r->send, COUNT, type, ncclSum, r->comm, r->stream)));
        CHECK(!check(r, "all_reduce in place", d, r->send, COUNT, summed));
    }
    return 0;
}

static int groups(struct rank *r)
{
    const struct nccl_calls *n = r->calls;
    size_t part = COUNT * sizeof(float);
    int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
    CHECK(!fill(r, DTYPE_F32, COUNT * r->size));
    /* a ring, which would hang without the group */
    CHECK(n->group_start() == ncclSuccess);
    CHECK(n->send(r->send, COUNT, ncclFloat32, next, r->comm, r->stream) == ncclSuccess);
    CHECK(n->recv(r->recv, COUNT, ncclFloat32, previous, r->comm, r->stream) == ncclSuccess);
    CHECK(fine(r, n->group_end()));
    CHECK(!check(r, "ring", DTYPE_F32, r->recv, COUNT, of_previous));
    CHECK(n->group_start() == ncclSuccess);
    for (int peer = 0; peer < r->size; peer++) {
        CHECK(n->send(r->send + (size_t)peer * part, COUNT, ncclFloat32, peer, r->comm, r->stream) ==
              ncclSuccess);
        CHECK(n->recv(r->recv + (size_t)peer * part, COUNT, ncclFloat32, peer, r->comm, r->stream) ==
              ncclSuccess);
    }
    CHECK(fine(r, n->group_end()));
    CHECK(!check(r, "all to all", DTYPE_F32, r->recv, COUNT * r->size, exchanged));
    return 0;
}

static int parts(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t stored = NULL, whole = r->comm;
    ncclResult_t result = r->calls->split(r->comm, 0, -r->rank, &stored, &config); /* all, in reverse */
    /* It may say ncclSuccess and have only begun: the old communicator's state tells, and then the new one is
     * stored. */
    CHECK((result == ncclSuccess || result == ncclInProgress) && settled(r, r->comm) == ncclSuccess);
    ncclComm_t part = __atomic_load_n(&stored, __ATOMIC_ACQUIRE);
    CHECK(part && settled(r, part) == ncclSuccess);
    int root = 0; /* the part's: the last rank */
    CHECK(!fill(r, DTYPE_F32, COUNT));
    r->comm = part;
    CHECK(fine(r, r->calls->broadcast(r->send, r->recv, COUNT, ncclFloat32, root, part, r->stream)));
    CHECK(!check(r, "broadcast of a part", DTYPE_F32, r->recv, COUNT, of_last));
    int failed = end(r);
    r->comm = whole;
    return failed;
}

/* An operation whose peers do not come: only an abort ends it, and the stream is empty then. */
static int aborted(struct rank *r)
{
    CHECK(!make(r));
    if (r->rank > 0 || r->size == 1) {
        CHECK(
            fine(r, r->calls->all_reduce(r->send, r->recv, COUNT, ncclFloat32, ncclSum, r->comm, r->stream)));
        CHECK(r->size == 1 || cudaStreamQuery(r->stream) == cudaErrorNotReady);
    }
    CHECK(meet(r));
    CHECK(r->calls->abort(r->comm) == ncclSuccess);
    CHECK(cudaStreamSynchronize(r->stream) == cudaSuccess);
    return 0;
}

/* ---- refusals of the fake alone ---- */

static bool refused(struct rank *r, ncclResult_t result, const char *text)
{
    const char *last = r->calls->last_error(NULL);
    if (result != ncclSuccess && result != ncclInProgress && strstr(last, text))
        return true;
    fprintf(stderr, "rank %d: result %d, \"%s\" without \"%s\"\n", r->rank, result, last, text);
    return false;
}

static int misuse(struct rank *r)
{
    const struct nccl_calls *n = r->calls;
    ncclComm_t c = r->comm;
    cudaStream_t s = r->stream;
    float local[4] = {0};
    char *mine = r->recv + 4;
    CHECK(refused(r, n->all_reduce(local, r->recv, 4, ncclFloat32, ncclSum, c, s),
                  "send is not 16 bytes of device"));
    CHECK(refused(r, n->all_reduce(r->send, local, 4, ncclFloat32, ncclSum, c, s),
                  "recv is not 16 bytes of device"));
    CHECK(refused(r, n->all_gather(r->send, r->recv, BYTES, ncclFloat64, c, s), "bytes of device memory"));
    CHECK(refused(r, n->all_reduce(mine, r->recv, 4, ncclFloat32, ncclSum, c, s), "overlap"));
    CHECK(refused(r, n->all_gather(mine, r->recv, 4, ncclFloat32, c, s), "overlap"));
    CHECK(refused(r, n->reduce_scatter(r->recv, mine, 4, ncclFloat32, ncclSum, c, s), "overlap"));
    CHECK(refused(r, n->all_reduce(r->send, r->recv, 4, ncclInt32, ncclAvg, c, s), "reduction 4 of type 2"));
    CHECK(refused(r, n->all_reduce(r->send, r->recv, 4, (ncclDataType_t)11, ncclSum, c, s), "type 11"));
    CHECK(refused(r, n->broadcast(r->send, r->recv, 4, ncclFloat32, r->size, c, s), "of"));
    CHECK(refused(r, n->send(r->send, 4, ncclFloat32, r->rank, c, s), "only in a group"));
    CHECK(refused(r, n->group_end(), "without ncclGroupStart"));
    CHECK(refused(r, n->all_reduce(r->send, r->recv, 4, ncclFloat32, ncclSum, NULL, s), "is NULL"));
    return 0;
}

struct second_thread {
    struct rank *r;
    ncclResult_t result;
    char last[256];
};

static void *use_too(void *argument)
{
    struct second_thread *second = argument;
    struct rank *r = second->r;
    clock_sleep_until(instant_add(clock_now(NULL), 100 * NS_PER_MS));
    second->result = r->calls->all_reduce(r->send, r->recv, 4, ncclFloat32, ncclSum, r->comm, r->stream);
    (void)snprintf(second->last, sizeof second->last, "%s", r->calls->last_error(r->comm));
    return NULL;
}

/* Calls that are right by themselves, at a wrong time. */
static int badly_timed(struct rank *r)
{
    const struct nccl_calls *n = r->calls;
    struct second_thread second = {.r = r};
    pthread_t thread;
    CHECK(!make(r));
    setenv("FAKE_NCCL_IN_PROGRESS", "always", 1);
    CHECK(n->all_reduce(r->send, r->recv, 4, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInProgress);
    CHECK(refused(r, n->all_reduce(r->send, r->recv, 4, ncclFloat32, ncclSum, r->comm, r->stream),
                  "is not ready, its state is ncclInProgress"));
    setenv("FAKE_NCCL_IN_PROGRESS", "never", 1);
    CHECK(settled(r, r->comm) == ncclSuccess && cudaStreamSynchronize(r->stream) == cudaSuccess);
    setenv("FAKE_NCCL_LINGER", "400", 1);
    CHECK(pthread_create(&thread, NULL, use_too, &second) == 0);
    ncclResult_t result = n->all_reduce(r->send, r->recv, 4, ncclFloat32, ncclSum, r->comm, r->stream);
    CHECK(pthread_join(thread, NULL) == 0 && result == ncclSuccess);
    unsetenv("FAKE_NCCL_LINGER");
    unsetenv("FAKE_NCCL_IN_PROGRESS");
    CHECK(second.result == ncclInvalidUsage &&
          strstr(second.last, "two threads use one communicator at once"));
    CHECK(!end(r));
    CHECK(refused(r, n->all_reduce(r->send, r->recv, 4, ncclFloat32, ncclSum, r->comm, r->stream),
                  "was destroyed or aborted"));
    return 0;
}

/* A pair of calls that differ between rank 0 and the others: both ranks are named. */
static int differ(struct rank *r, int kind)
{
    const struct nccl_calls *n = r->calls;
    bool odd = r->rank == 0;
    ncclResult_t result = ncclSuccess;
    CHECK(!make(r));
    ncclComm_t c = r->comm;
    cudaStream_t s = r->stream;
    switch (kind) {
    case 0: /* count */
        result = n->all_reduce(r->send, r->recv, odd ? 10 : 11, ncclFloat32, ncclSum, c, s);
        break;
    case 1: /* type */
        result = n->all_gather(r->send, r->recv, 10, odd ? ncclInt32 : ncclFloat32, c, s);
        break;
    case 2: /* reduction */
        result = n->reduce_scatter(r->send, r->recv, 10, ncclFloat32, odd ? ncclMax : ncclSum, c, s);
        break;
    case 3: /* root */
        result = n->broadcast(r->send, r->recv, 10, ncclFloat32, odd ? 0 : 1, c, s);
        break;
    case 4: /* kind */
        result = odd ? n->all_gather(r->send, r->recv, 10, ncclFloat32, c, s)
                     : n->all_reduce(r->send, r->recv, 10, ncclFloat32, ncclSum, c, s);
        break;
    case 5: /* a collective against a send */
        result = odd ? n->all_reduce(r->send, r->recv, 10, ncclFloat32, ncclSum, c, s)
                     : n->send(r->send, 10, ncclFloat32, 0, c, s);
        break;
    case 6: /* two sends that wait for each other */
        result = n->send(r->send, 10, ncclFloat32, odd ? 1 : 0, c, s);
        break;
    case 7: /* the order of two */
        result = n->all_reduce(r->send, r->recv, odd ? 10 : 12, ncclFloat32, ncclSum, c, s);
        (void)settled(r, c); /* the difference may be found by then */
        (void)n->all_reduce(r->send, r->recv, odd ? 12 : 10, ncclFloat32, ncclSum, c, s);
        break;
    default: /* count of a receive */
        result = odd ? n->send(r->send, 10, ncclFloat32, 1, c, s) : n->recv(r->recv, 9, ncclFloat32, 0, c, s);
        break;
    }
    CHECK(result == ncclSuccess || result == ncclInProgress);
    struct instant limit = instant_add(clock_now(NULL), 10 * NS_PER_S);
    ncclResult_t state = settled(r, c);
    /* for a send and a receive that differ the receiver alone can know */
    while (state == ncclSuccess && !(kind == 8 && odd) && !instant_reached(clock_now(NULL), limit))
        state = settled(r, c);
    if (!(kind == 8 && odd)) {
        const char *text = n->last_error(c);
        if (state != ncclInvalidUsage || !strstr(text, "rank 0") || !strstr(text, "rank 1")) {
            fprintf(stderr, "rank %d, difference %d: state %d, %s\n", r->rank, kind, state, text);
            return -1;
        }
    }
    CHECK(meet(r));
    CHECK(n->abort(c) == ncclSuccess);
    CHECK(refused(r, n->abort(c), "no such communicator"));
    return 0;
}

/* ---- a rank ---- */

static int all(struct rank *r)
{
    CHECK(!make(r) && !collectives(r) && !groups(r) && !parts(r));
    if (r->fake)
        CHECK(!misuse(r));
    CHECK(!end(r) && !aborted(r));
    if (r->fake)
        CHECK(!badly_timed(r));
    for (int kind = 0; r->fake && r->size == 2 && kind < 9; kind++)
        CHECK(!differ(r, kind));
    return 0;
}

static int rank_main(struct rank *r)
{
    int devices = 0;
    CHECK(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0);
    CHECK(cudaSetDevice(r->rank % devices) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc((void **)&r->send, BYTES) == cudaSuccess &&
          cudaMalloc((void **)&r->recv, BYTES) == cudaSuccess);
    r->host = malloc(BYTES);
    r->fake = is_fake();
    return all(r);
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int size = argc > 1 ? atoi(argv[1]) : 0, bad = 0, status;
    struct rank r = {.shared = shared, .size = size};
    if (argc > 1 && !strcmp(argv[1], "facts")) {
        r.calls = nccl_library(&err);
        if (!r.calls)
            fprintf(stderr, "%s\n", err.text);
        return !r.calls || facts(&r) ? 1 : 0;
    }
    if (size < 1 || size > RANKS_MAX) {
        fprintf(stderr, "usage: gpu_nccl_conformance facts | RANKS\n");
        return 2;
    }
    for (r.rank = 0; r.rank < size; r.rank++) {
        if (fork())
            continue;
        alarm(120);
        r.calls = nccl_library(&err);
        _exit(!r.calls || rank_main(&r) ? 1 : 0);
    }
    while (wait(&status) > 0)
        bad += status != 0;
    printf("%d of %d ranks ended badly\n", bad, size);
    return bad != 0;
}
