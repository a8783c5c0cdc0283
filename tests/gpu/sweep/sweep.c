/* sweep.c - the fault sweep: every call of cudart, cuBLASLt and NCCL in a training run of 3 steps on 2 ranks
 * fails once, each in a run of its own.
 *
 *   gpu_sweep [--all] [--part K/N] [--restart] [--graphs] [--comm nccl|host] [--jobs N] [--set KEY=VALUE ...]
 *             [FUNCTION | FUNCTION:N@RANK ...]
 *
 * Each time both ranks end within a minute (more on a machine on which a run without faults takes long) with
 * an error that names the call or its operation; over the host's comm the other rank may name the failed rank
 * instead. An error that no restart would mend is printed by a single rank
 * for both. The ranks leave none of the libraries' objects: no memory, stream, event, graph, communicator,
 * descriptor. A call whose failure does no harm (table below) may also leave a run that ends with the
 * undisturbed weights. --restart: then the run is started again, as a launcher does, and has to end with the
 * undisturbed weights. --graphs: layers are launched as CUDA graphs. --set: of the run's configuration, which
 * has one layer.
 *
 * Without --all a sample fails: the first and the last call of each function, on the ranks in turn. With
 * --all every call fails, on the ranks in turn. Of the calls that are repeated until the work is done (ASKS)
 * at most ASKS_MOST fail, evenly spread, since their number depends on time, and of others at most
 * REPEATS_MOST: a comm makes thousands of events by one loop. --part: every N-th call of a function, from one
 * on that K and the function's name decide. All parts are all faults. */
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
#include "proto/base/text.h"
#include "tests/gpu/sweep/sweep_pair.h"

enum { FAULTS_MOST = 65536, JOBS_MOST = 16, ASKS_MOST = 60, REPEATS_MOST = 300 };

/* ---- facts about a function ---- */

enum nature {
    PLAIN,
    ASKS,       /* whether something is done: some calls more or fewer a run */
    GIVES_BACK, /* its object stays: one object may be left, and the run may end well */
    SPARE       /* there is another way: the run ends well */
};
static const struct row {
    const char *function; /* begins so */
    enum nature nature;
    const char *names; /* in errors; NULL: the function */
} rows[] = {
    {"AllGather", PLAIN, "all_gather"},
    {"ReduceScatter", PLAIN, "reduce_scatter"},
    {"AllReduce", PLAIN, "all_reduce"},
    {"Broadcast", PLAIN, "broadcast"},
    {"Recv", PLAIN, "recv"},
    {"Send", PLAIN, "send"},
    {"cudaEventDestroy", GIVES_BACK, NULL},
    {"cudaEventElapsedTime", SPARE,
     NULL}, /* after the end of an operation; at the end of a run no caller wants it */
    {"cudaEventQuery", ASKS, NULL},
    {"cudaFree", GIVES_BACK, NULL},
    {"cudaFreeHost", GIVES_BACK, NULL},
    {"cudaGetDevice", SPARE, NULL}, /* also by closing functions, which go on */
    {"cudaGraphDestroy", GIVES_BACK, NULL},
    {"cudaGraphExecDestroy", GIVES_BACK, NULL},
    {"cudaHostAlloc", SPARE, NULL}, /* without pinned memory a checkpoint is written between steps */
    {"cudaMemGetInfo", SPARE, NULL},
    {"cudaStreamDestroy", GIVES_BACK, NULL},
    {"cudaStreamQuery", ASKS, NULL},
    {"cublasLtDestroy", GIVES_BACK, NULL},
    {"cublasLtMatmulDescDestroy", GIVES_BACK, NULL},
    {"cublasLtMatmulPreferenceDestroy", GIVES_BACK, NULL},
    {"cublasLtMatrixLayoutDestroy", GIVES_BACK, NULL},
    {"ncclCommAbort", GIVES_BACK, NULL},
    {"ncclCommDeregister", GIVES_BACK, NULL},
    {"ncclCommDestroy", GIVES_BACK, NULL},
    {"ncclCommFinalize", GIVES_BACK, NULL},
    {"ncclCommGetAsyncError", ASKS, NULL},
};

static struct row row_of(const char *function)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].function, function))
            return rows[i];
    return (struct row){function, PLAIN, NULL};
}

/* ---- the faults ---- */

struct fault {
    char function[80];
    int call, rank;
    int of; /* calls of this rank in the undisturbed run; 0: not known, it was asked for by name */
};

static struct {
    bool all, restarts, graphs;
    const char *comm;
    int jobs, part, parts; /* part: from 1 on */
    const char *sets[SWEEP_SETS];
    int set_count;
    char *const *wanted;
    int wanted_count;
    int64_t limit_ns;
    char folder[SWEEP_PATH - 32];
    uint16_t store;
    struct buffer weights; /* the undisturbed run's */
    struct fault faults[FAULTS_MOST];
    int count;
} sweep = {.comm = "nccl", .jobs = 4, .part = 1, .parts = 1, .limit_ns = 60 * NS_PER_S};

/* Shared by the sweeping processes. */
static struct shared {
    _Atomic(int) next, wrong, ended_well, not_reached, named_by_both;
    _Atomic(int64_t) longest_ns;
    _Atomic(int) longest; /* which fault */
} * shared;

static bool is_wanted(const char *function)
{
    if (!sweep.wanted_count)
        return true;
    for (int i = 0; i < sweep.wanted_count; i++)
        if (!strcmp(sweep.wanted[i], function))
            return true;
    return false;
}

static void add_fault(const char *function, int call, int rank, int of)
{
    struct fault *fault = &sweep.faults[sweep.count];
    const uint64_t turn = text_hash(TEXT_HASH_START, function, strlen(function)) + (uint64_t)call;
    if (sweep.count == FAULTS_MOST ||
        (sweep.parts > 1 && turn % (uint64_t)sweep.parts != (uint64_t)sweep.part - 1) ||
        (sweep.count > 0 && call == fault[-1].call && !strcmp(function, fault[-1].function)))
        return;
    (void)snprintf(fault->function, sizeof fault->function, "%s", function);
    fault->call = call;
    fault->rank = rank;
    fault->of = of;
    sweep.count++;
}

/* By turns, which are others for other functions. */
static int rank_of(const char *function, int call)
{
    return (int)((text_hash(TEXT_HASH_START, function, strlen(function)) + (uint64_t)call) % SWEEP_RANKS);
}

/* counts: of both ranks. */
static void add_function(const char *function, const int counts[SWEEP_RANKS])
{
    const int most = counts[0] > counts[1] ? counts[0] : counts[1];
    const int tried = row_of(function).nature == ASKS ? ASKS_MOST : REPEATS_MOST;
    int stride = 1;
    if (!is_wanted(function))
        return;
    if (!sweep.all)
        stride = most > 1 ? most : 1;
    else if (most > tried)
        stride = most / tried | 1; /* odd: the ranks take turns */
    for (int call = 1; call <= most; call += stride) {
        int rank = rank_of(function, call);
        if (counts[rank] < call)
            rank = 1 - rank;
        add_fault(function, call, rank, counts[rank]);
    }
    add_fault(function, most, counts[1] == most, most);
}

static int count_in(const char *text, const char *function)
{
    char wanted[96];
    (void)snprintf(wanted, sizeof wanted, "%s ", function);
    const size_t length = strlen(wanted);
    for (; text && *text; text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL)
        if (!strncmp(text, wanted, length))
            return atoi(text + length);
    return 0;
}

/* ---- the undisturbed run ---- */

static int read_text(const char *name, struct buffer *out)
{
    char path[SWEEP_PATH + 32];
    struct muster_error err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", sweep.folder, name);
    if (io_read_file(path, 64 << 20, out, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    return 0;
}

static int find_faults(void)
{
    struct buffer counts[SWEEP_RANKS] = {{0}};
    char names[SWEEP_RANKS][16];
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        (void)snprintf(names[rank], sizeof names[rank], "count-%d", rank);
        if (read_text(names[rank], &counts[rank]))
            return -1;
    }
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        for (const char *line = counts[rank].data; line && *line;
             line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            char function[80];
            if (sscanf(line, "%79s", function) != 1 || (rank && count_in(counts[0].data, function)))
                continue;
            const int of[SWEEP_RANKS] = {count_in(counts[0].data, function),
                                         count_in(counts[1].data, function)};
            add_function(function, of);
        }
    }
    for (int rank = 0; rank < SWEEP_RANKS; rank++)
        buffer_free(&counts[rank]);
    return 0;
}

static struct sweep_run run_of(const char *folder, int64_t number)
{
    return (struct sweep_run){.folder = folder,
                              .comm = sweep.comm,
                              .graphs = sweep.graphs,
                              .sets = sweep.sets,
                              .store = sweep.store,
                              .number = number,
                              .limit_ns = sweep.limit_ns};
}

static bool ended_well(const struct sweep_rank ranks[SWEEP_RANKS])
{
    return ranks[0].ended && ranks[1].ended && !ranks[0].status && !ranks[1].status;
}

static void show(const struct sweep_rank ranks[SWEEP_RANKS])
{
    for (int rank = 0; rank < SWEEP_RANKS; rank++)
        printf("---- rank %d, status %x, %.2f s:\n%s", rank, (unsigned)ranks[rank].status,
               (double)ranks[rank].ns / (double)NS_PER_S, ranks[rank].said);
}

static long left_of(const struct sweep_left *left)
{
    return left->allocations + left->streams + left->events + left->graphs + left->communicators +
           left->products + left->dead_uses;
}

static int run_undisturbed(void)
{
    static struct sweep_rank ranks[SWEEP_RANKS];
    struct sweep_run run = run_of(sweep.folder, 0);
    run.counts = true;
    if (sweep_folder(sweep.folder))
        return -1;
    sweep_pair(&run, ranks);
    bool fine = ended_well(ranks) && !read_text("weights", &sweep.weights);
    for (int rank = 0; rank < SWEEP_RANKS; rank++)
        fine = fine && ranks[rank].left.reported && !left_of(&ranks[rank].left);
    if (!fine) {
        printf("the undisturbed run fails, or leaves something:\n");
        show(ranks);
        return -1;
    }
    if (ranks[0].ns > NS_PER_S) /* where it takes a third of that the machine is another's */
        sweep.limit_ns = (int64_t)((double)sweep.limit_ns * (double)ranks[0].ns / (double)NS_PER_S);
    const int failed = find_faults();
    printf("undisturbed: %.2f s; %d faults, each of which has %.0f s\n",
           (double)ranks[0].ns / (double)NS_PER_S, sweep.count, (double)sweep.limit_ns / (double)NS_PER_S);
    (void)fflush(stdout);
    return failed;
}

/* ---- one fault ---- */

static bool has_weights(const char *folder)
{
    char path[SWEEP_PATH + 32];
    scope_buffer weights = {0};
    (void)snprintf(path, sizeof path, "%s/weights", folder);
    return !io_read_file(path, 64 << 20, &weights, NULL) && weights.length == sweep.weights.length &&
           !memcmp(weights.data, sweep.weights.data, weights.length);
}

/* For the rank's error: it names the call or its operation; it is of something else; there is none. */
enum { NAMED, NAMED_OTHERWISE, NOT_NAMED };
static int naming_of(const struct fault *fault, const struct sweep_rank *rank)
{
    static char line[SWEEP_TEXT];
    const char *alias = row_of(fault->function).names;
    if (*sweep_line(rank->said, "error: ", fault->function, line) ||
        (alias && *sweep_line(rank->said, "error: ", alias, line)))
        return NAMED;
    /* a collective fails on the device, after its call: the next call on the stream may meet that first */
    if (alias && *sweep_line(rank->said, "error: ", "the stream refused the operation", line))
        return NAMED;
    return *sweep_line(rank->said, "error: ", "", line) ? NAMED_OTHERWISE : NOT_NAMED;
}

/* The host's comm tells the other rank who ended it, and not why: the reason is in that rank's own error. */
static bool names_rank(const struct sweep_rank *other, int failed)
{
    static char line[SWEEP_TEXT];
    char aborted[32], left[32];
    (void)snprintf(aborted, sizeof aborted, "rank %d aborted comm ", failed);
    (void)snprintf(left, sizeof left, "rank %d (pid ", failed);
    return *sweep_line(other->said, "error: ", aborted, line) ||
           (*sweep_line(other->said, "error: ", left, line) && strstr(line, " had left the comm "));
}

/* Where the other rank may have done its part and have gone: the job fails all the same. */
static const char last_part[] = ", reading all parameters: ";

/* Whether the run may have made fewer of these calls than the undisturbed one: how often the ranks agree on a
 * checkpoint that is written after steps depends on the disk and on who gets a processor. */
static bool may_be_missing(const struct fault *fault)
{
    enum { MANY = 8 };
    return row_of(fault->function).nature == ASKS || (fault->of >= MANY && 4 * fault->call > 3 * fault->of);
}

/* The fault of a run's end; NULL: none. */
static const char *judge(const struct fault *fault, const struct sweep_rank ranks[SWEEP_RANKS],
                         const char *folder)
{
    const enum nature nature = row_of(fault->function).nature;
    const bool reached = strstr(ranks[fault->rank].said, SWEEP_REFUSED) != NULL;
    const bool well = ended_well(ranks);
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        if (!ranks[rank].ended)
            return "a rank did not end in time";
        if (!WIFEXITED(ranks[rank].status))
            return "a rank was ended by a signal";
        if (strstr(ranks[rank].said, "Sanitizer"))
            return "a sanitizer reports";
        if (!ranks[rank].left.reported)
            return "a rank left no report";
        if (left_of(&ranks[rank].left) > (nature == GIVES_BACK && rank == fault->rank))
            return "something is left";
    }
    if (!reached) {
        atomic_fetch_add(&shared->not_reached, 1);
        return !well                   ? "a run without a fault fails"
               : may_be_missing(fault) ? NULL
                                       : "the call was not reached";
    }
    if (well) {
        atomic_fetch_add(&shared->ended_well, 1);
        return nature == PLAIN        ? "the fault was overlooked"
               : !has_weights(folder) ? "the weights are others"
                                      : NULL;
    }
    const struct sweep_rank *mine = &ranks[fault->rank], *other = &ranks[1 - fault->rank];
    if (!mine->status || (!other->status && !strstr(mine->said, last_part)))
        return "one rank fails, the other does not";
    const int victim = naming_of(fault, mine), peer = naming_of(fault, other);
    atomic_fetch_add(&shared->named_by_both, victim == NAMED && peer == NAMED);
    const bool told = !strcmp(sweep.comm, "host") && victim == NAMED && names_rank(other, fault->rank);
    if (victim == NAMED_OTHERWISE || (peer == NAMED_OTHERWISE && !told))
        return "a rank's error is of something else";
    return victim == NAMED || peer == NAMED ? NULL : "no rank names the call";
}

/* The same job again, without a fault. */
static const char *start_again(struct sweep_run *run, struct sweep_rank ranks[SWEEP_RANKS])
{
    run->restart = 1;
    run->limit_ns *= 2;
    sweep_pair(run, ranks);
    if (!ended_well(ranks))
        return "the restart fails";
    return has_weights(run->folder) ? NULL : "the restart ends with other weights";
}

static void print_wrong(const struct fault *fault, const char *wrong,
                        const struct sweep_rank ranks[SWEEP_RANKS])
{
    printf("WRONG %s:%d@%d: %s\n", fault->function, fault->call, fault->rank, wrong);
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        const struct sweep_left *left = &ranks[rank].left;
        printf(
            "rank %d leaves%s: %ld allocations, %ld streams, %ld events, %ld graphs, %ld communicators, %ld "
            "products; it used %ld communicators that had gone\n",
            rank, left->reported ? "" : " (no report)", left->allocations, left->streams, left->events,
            left->graphs, left->communicators, left->products, left->dead_uses);
    }
    show(ranks);
    (void)fflush(stdout);
}

static void try_fault(const struct fault *fault, int number, const char *folder)
{
    static struct sweep_rank ranks[SWEEP_RANKS];
    struct sweep_run run = run_of(folder, number);
    (void)snprintf(run.fault, sizeof run.fault, "%s:%d@%d", fault->function, fault->call, fault->rank);
    if (sweep_folder(folder))
        exit(2);
    sweep_pair(&run, ranks);
    for (int rank = 0; rank < SWEEP_RANKS; rank++)
        if (ranks[rank].ns > shared->longest_ns) { /* for two at once one may be lost */
            shared->longest_ns = ranks[rank].ns;
            shared->longest = number - 1;
        }
    const char *wrong = judge(fault, ranks, folder);
    if (!wrong && sweep.restarts && !ended_well(ranks))
        wrong = start_again(&run, ranks);
    if (!wrong)
        return;
    atomic_fetch_add(&shared->wrong, 1);
    print_wrong(fault, wrong, ranks);
}

/* ---- all of them ---- */

static void work(int job)
{
    char folder[SWEEP_PATH];
    (void)snprintf(folder, sizeof folder, "%s/%d", sweep.folder, job);
    for (int i; (i = atomic_fetch_add(&shared->next, 1)) < sweep.count;)
        try_fault(&sweep.faults[i], i + 1, folder);
    (void)fflush(stdout);
    _exit(0);
}

static int run_all(void)
{
    const struct instant start = clock_now(NULL);
    int broken = 0, status;
    (void)fflush(stdout);
    for (int job = 0; job < sweep.jobs; job++) {
        const pid_t pid = fork();
        if (pid == 0)
            work(job);
        broken += pid < 0;
    }
    for (int job = 0; job < sweep.jobs; job++) {
        pid_t pid; /* the store is a child, too, and stays */
        do
            pid = wait(&status);
        while (pid < 0 && errno == EINTR);
        broken += pid < 0 || status;
    }
    printf("%d faults over comm %s in %.0f s: %d wrong; %d did no harm, %d were not reached, %d were named "
           "by both "
           "ranks; the longest, %s:%d@%d, took %.1f s\n",
           sweep.count, sweep.comm, (double)instant_diff_ns(clock_now(NULL), start) / (double)NS_PER_S,
           shared->wrong, shared->ended_well, shared->not_reached, shared->named_by_both,
           sweep.faults[shared->longest].function, sweep.faults[shared->longest].call,
           sweep.faults[shared->longest].rank, (double)shared->longest_ns / (double)NS_PER_S);
    return shared->wrong || broken || !sweep.count;
}

static int read_words(int argc, char *argv[])
{
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--all"))
            sweep.all = true;
        else if (!strcmp(argv[i], "--restart"))
            sweep.restarts = true;
        else if (!strcmp(argv[i], "--graphs"))
            sweep.graphs = true;
        else if (!strcmp(argv[i], "--comm") && *next)
            sweep.comm = argv[++i];
        else if (!strcmp(argv[i], "--part") && sscanf(next, "%d/%d", &sweep.part, &sweep.parts) == 2 &&
                 sweep.part > 0 && sweep.part <= sweep.parts)
            i++;
        else if (!strcmp(argv[i], "--jobs") && atoi(next) > 0 && atoi(next) <= JOBS_MOST)
            sweep.jobs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--set") && *next && sweep.set_count < SWEEP_SETS)
            sweep.sets[sweep.set_count++] = argv[++i];
        else if (argv[i][0] == '-')
            return -1;
        else {
            sweep.wanted = argv + i;
            sweep.wanted_count = argc - i;
            break;
        }
    }
    return 0;
}

/* Names with a call and a rank are the whole list. */
static void take_words(void)
{
    struct fault fault;
    bool first = true;
    for (int i = 0; i < sweep.wanted_count; i++) {
        if (sscanf(sweep.wanted[i], "%79[^:]:%d@%d", fault.function, &fault.call, &fault.rank) != 3)
            continue;
        if (first)
            sweep.count = 0;
        first = false;
        add_fault(fault.function, fault.call, fault.rank & 1, 0);
    }
}

int main(int argc, char *argv[])
{
    if (read_words(argc, argv)) {
        fprintf(stderr,
                "usage: gpu_sweep [--all] [--part K/N] [--restart] [--graphs] [--comm nccl|host] [--jobs N] "
                "[--set KEY=VALUE ...] [FUNCTION | FUNCTION:N@RANK ...]\n");
        return 2;
    }
    const char *sanitized = getenv("MUSTER_SANITIZED");
    if (sanitized && *sanitized)
        sweep.limit_ns *= 6;
    (void)snprintf(sweep.folder, sizeof sweep.folder, "/dev/shm/gpu-sweep-XXXXXX");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(sweep.folder)) {
        perror("gpu_sweep");
        return 2;
    }
    int failed = sweep_load() || !(sweep.store = sweep_store()) || run_undisturbed();
    if (!failed) {
        take_words();
        failed = run_all();
    }
    if (!sweep_folder(sweep.folder)) /* empty but for two files */
        (void)0;
    buffer_free(&sweep.weights);
    return failed ? 1 : 0;
}
