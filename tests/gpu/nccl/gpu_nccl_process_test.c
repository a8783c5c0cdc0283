/* gpu_nccl_process_test.c - comm_nccl with ranks as processes, and a fault in a random operation: its device
 * hangs, its process dies, its communicator fails, or a call is refused. Every other rank gets an error that
 * names operation, number and rank, in time.
 *
 * usage: gpu_nccl_process SEEDS | refused [CALL]   (NCCL_TEST_SEED=N: from there) */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/text.h"
#include "runtime/world/world.h"
#include "tests/gpu/nccl/nccl_test_ranks.h"
#include "tests/support/walk.h"
#include "tests/unit/world/world_test_environment.h"

enum { RANKS_MAX = 4, OPERATIONS = 10 };
enum fault { FAULT_NONE, FAULT_HANG, FAULT_DIE, FAULT_ASYNC, FAULT_SLOW, FAULT_REFUSED, FAULT_COUNT };
static const char *const fault_names[] = {"none", "hang", "die", "async", "slow", "refused"};

struct scene {
    uint64_t seed;
    int size, victim, at; /* the operation, from 0 */
    enum fault fault;
    const char *refused; /* "ncclAllReduce:2" */
    struct comm_op ops[OPERATIONS];
    int64_t timeout_ns;
};

/* Results of the ranks for the test. */
struct outcome {
    struct muster_error error;
    char report[2048];
    int left; /* nccl_test_left */
    _Atomic(bool) over;
};

static struct scene scene_of(uint64_t seed)
{
    static const enum comm_kind kinds[] = {COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE,
                                           COMM_BROADCAST,  COMM_ALL_TO_ALL,     COMM_BARRIER,
                                           COMM_SEND};
    uint64_t state = seed;
    struct scene s = {.seed = seed, .timeout_ns = NS_PER_S};
    s.size = 2 + (int)(test_random(&state) % 3);
    s.victim = (int)(test_random(&state) % (uint64_t)s.size);
    s.at = (int)(test_random(&state) % OPERATIONS);
    s.fault = (enum fault)(1 + seed % 4);
    for (int i = 0; i < OPERATIONS; i++) {
        s.ops[i].kind =
            kinds[test_random(&state) % (s.size == 2 ? 7 : 6)]; /* sends concern two ranks alone */
        s.ops[i].count = 1 + (int64_t)(test_random(&state) % 3000);
        s.ops[i].root = s.ops[i].kind == COMM_BROADCAST ? (int)(test_random(&state) % (uint64_t)s.size) : 0;
    }
    return s;
}

static struct comm_op op_of(const struct scene *s, int i, int rank)
{
    struct comm_op op = s->ops[i];
    if (op.kind == COMM_SEND && rank == 1)
        op.kind = COMM_RECV;
    if (op.kind == COMM_SEND)
        op.root = 1;
    return op;
}

/* The number under which the fake counts the operation on the victim. */
static int number_of(const struct scene *s, int at)
{
    int number = 1;
    for (int i = 0; i < at; i++)
        number += s->ops[i].kind == COMM_ALL_TO_ALL ? 2 * s->size : 1;
    return number;
}

static void set_faults(const struct scene *s, int ras_port)
{
    char text[64];
    static const char *const variables[] = {[FAULT_HANG] = "FAKE_NCCL_HANG",
                                            [FAULT_DIE] = "FAKE_NCCL_DIE",
                                            [FAULT_ASYNC] = "FAKE_NCCL_ASYNC",
                                            [FAULT_SLOW] = "FAKE_NCCL_SLOW"};
    (void)snprintf(text, sizeof text, "%d:%d%s", s->victim, number_of(s, s->at),
                   s->fault == FAULT_SLOW ? ":300" : "");
    if (s->fault == FAULT_REFUSED)
        setenv("FAKE_CUDA_FAIL", s->refused, 1);
    else if (s->fault != FAULT_NONE)
        setenv(variables[s->fault], text, 1);
    (void)snprintf(text, sizeof text, "127.0.0.1:%d", ras_port);
    setenv("NCCL_RAS_ADDR", text, 1);
}

static void do_operations(struct nccl_rank *r, const struct scene *s, struct muster_error *err)
{
    float *send = r->arena.base, *recv = send + 4096 * RANKS_MAX;
    for (int i = 0; i < OPERATIONS && !err->code; i++) {
        const struct comm_op op = op_of(s, i, r->rank);
        if (comm_nccl()->issue(r->comm, &op, send, recv, r->stream, err))
            return;
    }
    (void)nccl_sync(r, r->stream, err);
}

/* Never returns. */
static void rank_main(const struct scene *s, int rank, int port, int ras_port, struct outcome *outcome)
{
    struct nccl_rank r;
    if (s->fault != FAULT_REFUSED || rank == s->victim)
        set_faults(s, ras_port);
    struct test_environment e = test_environment_of(rank, s->size, port, false, 0);
    struct muster_world *world = test_environment_open(&e, 60000, &outcome->error);
    /* all are connected before one fails; where the rank that fails has the store, it may leave with the
     * answer */
    if (!world || muster_world_barrier(world, &outcome->error) < 0)
        _exit(s->fault == FAULT_REFUSED && rank != s->victim ? 0 : 2);
    if (!nccl_rank_open(&r, rank, s->size, s->timeout_ns, world_store(world), &outcome->error)) {
        struct buffer text = {0};
        do_operations(&r, s, &outcome->error);
        if (outcome->error.code)
            clock_sleep_until(
                instant_add(clock_now(NULL), 200 * NS_PER_MS)); /* the watching thread asks RAS */
        if (outcome->error.code == MUSTER_E_TIMEOUT)
            clock_sleep_until(instant_add(clock_now(NULL), 500 * NS_PER_MS));
        if (!comm_nccl()->report(r.comm, &text) && text.data)
            (void)snprintf(outcome->report, sizeof outcome->report, "%s", text.data);
        nccl_rank_close(&r);
    }
    outcome->left = nccl_test_left();
    outcome->over = true;
    if (!outcome->error.code)
        muster_world_close(&world);
    _exit(0);
}

/* ---- the test ---- */

static const char *complaint; /* the scene's */

/* A rank that is later than the dying rank may have issued nothing since operation #last, or nothing at all.
 */
static bool is_between(const char *text, int last)
{
    const char *between = strstr(text, "exited between operations of comm ");
    const char *number = between ? strchr(between, '#') : NULL;
    return between && (!number || atoi(number + 1) <= last);
}

/* Do all errors say what they have to? */
static bool is_told(const struct scene *s, const struct outcome *outcomes, int victim_pid)
{
    char before[64], now[64], who[64], behind[96], gone[96];
    const struct comm_op op = s->ops[s->at];
    const char *kind = comm_kind_name(op.kind), *other = op.kind == COMM_SEND ? "recv" : kind;
    (void)snprintf(now, sizeof now, "#%d ", s->at + 1);
    (void)snprintf(before, sizeof before, "#%d ",
                   s->at); /* may not have been finished when the victim died */
    (void)snprintf(who, sizeof who, "rank %d", s->victim);
    (void)snprintf(behind, sizeof behind, "Rank %d has started %d operations: fewer", s->victim,
                   number_of(s, s->at) - 1);
    (void)snprintf(gone, sizeof gone, "%s (pid %d) exited ", who, victim_pid);
    bool reported = false;
    for (int rank = 0; rank < s->size; rank++) {
        const char *text = outcomes[rank].error.text;
        if (s->fault == FAULT_DIE && rank == s->victim)
            continue;
        bool number = strstr(text, now) || (s->fault == FAULT_DIE && strstr(text, before));
        bool named = strstr(text, kind) || strstr(text, other) || strstr(text, before);
        if (s->fault == FAULT_DIE && is_between(text, s->at))
            number = named = true;
        const bool exited = s->fault == FAULT_DIE && strstr(text, ") exited ");
        if (!number || !named || (s->fault != FAULT_HANG && !strstr(text, who)) ||
            (exited && !strstr(text, gone))) {
            complaint = text;
            return false;
        }
        reported = reported || strstr(outcomes[rank].report, behind);
    }
    complaint = "no report names the rank that hangs";
    return s->fault != FAULT_HANG || reported;
}

static bool wait_for_ranks(const struct scene *s, const pid_t *pids, double *took)
{
    struct instant start = clock_now(NULL), limit = instant_add(start, 40 * NS_PER_S);
    bool fine = true;
    for (int rank = 0; rank < s->size; rank++) {
        int status = 0;
        while (waitpid(pids[rank], &status, WNOHANG) == 0) {
            if (instant_reached(clock_now(NULL), limit)) {
                complaint = "a rank did not end";
                fine = false;
                (void)kill(pids[rank], SIGKILL);
            }
            clock_sleep_until(instant_add(clock_now(NULL), 2 * NS_PER_MS));
        }
        bool dies = s->fault == FAULT_DIE && rank == s->victim;
        if (fine && (dies ? !WIFSIGNALED(status) : status != 0)) {
            static char text[64];
            (void)snprintf(text, sizeof text, "rank %d ended with status %x", rank, (unsigned)status);
            complaint = text;
            fine = false;
        }
    }
    *took = (double)instant_diff_ns(clock_now(NULL), start) / (double)NS_PER_S;
    return fine;
}

static bool play(const struct scene *s)
{
    pid_t pids[RANKS_MAX];
    struct outcome *outcomes =
        mmap(NULL, RANKS_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int port = test_free_port(), ras_port = test_free_port();
    double took = 0;
    char op[COMM_TEXT];
    for (int rank = 0; rank < s->size; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            alarm(60);
            rank_main(s, rank, port, ras_port, &outcomes[rank]);
        }
    }
    bool fine = wait_for_ranks(s, pids, &took);
    bool failed = false;
    for (int rank = 0; rank < s->size; rank++) {
        const bool gives_back_nothing = s->refused && !strcmp(s->refused, "ncclCommAbort:1");
        failed |= outcomes[rank].error.code != 0;
        if (fine && outcomes[rank].left && !gives_back_nothing) {
            complaint = "communicators are left, or used after their end";
            fine = false;
        }
    }
    if (fine && (s->fault == FAULT_SLOW || s->fault == FAULT_NONE)) {
        complaint = "a rank failed";
        fine = !failed;
    } else if (fine && s->fault != FAULT_REFUSED) {
        fine = is_told(s, outcomes, (int)pids[s->victim]);
    }
    if (fine && took > 10) {
        complaint = "it took longer than 10 s";
        fine = false;
    }
    printf("%s seed %llu: %s on rank %d of %d in %s #%d: %.2f s: %s\n", fine ? "ok  " : "FAIL",
           (unsigned long long)s->seed, s->refused ? s->refused : fault_names[s->fault], s->victim, s->size,
           comm_op_text(op, &s->ops[s->at]), s->at + 1, took, outcomes[s->victim == 0].error.text);
    for (int rank = 0; !fine && rank < s->size; rank++)
        printf("     rank %d: %s\n%s", rank, outcomes[rank].error.text, outcomes[rank].report);
    if (!fine)
        printf("     %s\n", complaint ? complaint : "");
    (void)fflush(stdout);
    (void)munmap(outcomes, RANKS_MAX * sizeof *outcomes);
    return fine;
}

/* Each NCCL function that comm_nccl calls, refused once on one rank. only: that one; NULL: all. */
static int refuse_calls(const char *only)
{
    static const char *const calls[] = {"ncclGetVersion:1",
                                        "ncclGetUniqueId:1",
                                        "ncclCommInitRankConfig:1",
                                        "ncclCommGetAsyncError:1",
                                        "ncclCommGetAsyncError:5",
                                        "ncclAllGather:1",
                                        "ncclReduceScatter:1",
                                        "ncclAllReduce:1",
                                        "ncclBroadcast:1",
                                        "ncclSend:1",
                                        "ncclRecv:1",
                                        "ncclGroupStart:1",
                                        "ncclGroupEnd:1",
                                        "ncclCommFinalize:1",
                                        "ncclCommDestroy:1",
                                        "ncclCommAbort:1",
                                        "AllReduce:1",
                                        "cudaStreamWaitEvent:1",
                                        "cudaEventRecord:7",
                                        "cudaEventQuery:2",
                                        "cudaPointerGetAttributes:3"};
    int bad = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (only && strcmp(only, calls[i]) != 0)
            continue;
        struct scene s = {.seed = i,
                          .size = 2,
                          .victim = (int)(i % 2),
                          .fault = FAULT_REFUSED,
                          .refused = calls[i],
                          .timeout_ns = 3 * NS_PER_S};
        if (strstr(calls[i], "UniqueId"))
            s.victim = 0;
        for (int k = 0; k < OPERATIONS; k++)
            s.ops[k] = (struct comm_op){.kind = (enum comm_kind)(k % COMM_KIND_COUNT), .count = 10 + k};
        for (int k = 0; k < OPERATIONS; k++)
            s.ops[k].kind = s.ops[k].kind == COMM_RECV ? COMM_SEND : s.ops[k].kind;
        bad += !play(&s);
    }
    return bad;
}

/* Scenes wait most of their time: some at once, each process every so many seeds. How many failed. */
static int play_seeds(uint64_t first, uint64_t seeds)
{
    enum { AT_ONCE = 4 };
    pid_t pids[AT_ONCE];
    int bad = 0, status;
    (void)fflush(stdout);
    for (uint64_t i = 0; i < AT_ONCE; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            for (uint64_t seed = first + i; seed < first + seeds; seed += AT_ONCE) {
                const struct scene s = scene_of(seed);
                bad += !play(&s);
            }
            _exit(bad < 255 ? bad : 255);
        }
    }
    for (int i = 0; i < AT_ONCE; i++)
        bad += pids[i] > 0 && waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status)
                   ? WEXITSTATUS(status)
                   : 1;
    return bad;
}

int main(int argc, char **argv)
{
    int64_t seeds = 0;
    const char *given = getenv("NCCL_TEST_SEED");
    uint64_t first = given ? strtoull(given, NULL, 0) : (uint64_t)clock_wall_ns() % 1000000;
    int bad = 0;
    if (argc > 1 && !strcmp(argv[1], "refused"))
        return refuse_calls(argc > 2 ? argv[2] : NULL) != 0;
    if (argc < 2 || !text_int64(argv[1], &seeds)) {
        fprintf(stderr, "usage: gpu_nccl_process refused [CALL]|SEEDS\n");
        return 2;
    }
    bad = play_seeds(first, (uint64_t)seeds);
    printf("%d of %lld scenes failed (NCCL_TEST_SEED=%llu)\n", bad, (long long)seeds,
           (unsigned long long)first);
    return bad != 0;
}
