/* comm_nccl.c - the comm over NCCL as an object: creation, splitting, status, abort, end. See comm_nccl.h. */
#include "runtime/cuda/comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/comm/comm_reduce.h"
#include "runtime/cuda/comm_nccl_internal.h"
#include "runtime/world/agree.h"

static void nccl_destroy(struct comm *comm);
GUARD_DEFINE(comm, struct comm *, nccl_destroy);

/* ---- a comm without a communicator ---- */

static int make_events(struct nccl_comm *comm, struct muster_error *err)
{
    const char *function = "cudaStreamCreateWithFlags";
    cudaError_t status = cudaStreamCreateWithFlags(&comm->own, cudaStreamNonBlocking);
    for (int i = 0; i < COMM_CALLS && status == cudaSuccess; i++) {
        function = "cudaEventCreateWithFlags";
        status = cudaEventCreateWithFlags(&comm->slots[i].begun, cudaEventDefault); /* timed: busy_ns */
        if (status == cudaSuccess)
            status = cudaEventCreateWithFlags(&comm->slots[i].ended, cudaEventDefault);
    }
    if (status != cudaSuccess) {
        (void)cuda_error(err, (int)status, function); /* -1, as we return */
        return error_wrap(err, "events of comm %s", comm->comm.name);
    }
    if (comm->comm.device_ops->arena_create(comm->comm.device, MEMORY_DEVICE, 256, &comm->barrier, err))
        return -1;
    return comm->number ? 0
                        : nccl_stage_open(comm, err); /* sums of a host's variables go through the first */
}

static void free_events(struct nccl_comm *comm)
{
    for (int i = 0; i < COMM_CALLS; i++) {
        if (comm->slots[i].begun)
            (void)cudaEventDestroy(
                comm->slots[i].begun); /* a device that failed refuses, and keeps nothing */
        if (comm->slots[i].ended)
            (void)cudaEventDestroy(comm->slots[i].ended);
    }
    if (comm->own)
        (void)cudaStreamDestroy(comm->own);
    if (comm->barrier.base)
        comm->comm.device_ops->arena_destroy(comm->comm.device, &comm->barrier);
    nccl_stage_free(comm);
}

/* Makes a communicator and adds it to the family. members: ranks in the family's first comm; NULL: this is
 * the first.
 */
static struct nccl_comm *make_object(struct nccl_family *family, const struct comm_options *options,
                                     int color, const int *members, struct muster_error *err)
{
    struct nccl_comm *comm = mem_calloc(1, sizeof *comm);
    int *own_members = mem_calloc((size_t)options->size, sizeof *own_members);
    if (!comm || !own_members) {
        mem_free(comm);
        mem_free(own_members);
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for comm %s", options->key ? options->key : "alone");
        return NULL;
    }
    comm_init(&comm->comm, options, NULL);
    comm->family = family;
    comm->color = color;
    comm->members = own_members;
    for (int rank = 0; rank < options->size; rank++)
        own_members[rank] = members ? members[rank] : rank;
    comm->board = (struct comm_board){
        .store = options->store, .key = comm->comm.name, .kind = "nccl", .rank = options->rank};
    return comm;
}

static void free_object(struct nccl_comm *comm)
{
    if (!comm)
        return;
    mem_free(comm->members);
    mem_free(comm);
}

/* Takes over a reference to the family. err is not NULL. */
static struct nccl_comm *allocate(struct nccl_family *family, const struct comm_options *options, int color,
                                  const int *members, struct muster_error *err)
{
    struct nccl_comm *comm = make_object(family, options, color, members, err);
    if (!comm || nccl_family_add(family, comm, err)) { /* the watching thread sees it from here on */
        free_object(comm);
        nccl_watch_drop(family);
        return NULL;
    }
    if (make_events(comm, err)) {
        nccl_family_fail(family, err); /* before the comm is left: that would be taken for the reason */
        nccl_destroy(&comm->comm);
        return NULL;
    }
    return comm;
}

/* ---- creation ---- */

static int nccl_check_options(const struct comm_options *options, struct muster_error *err)
{
    if (comm_check_ranks(options, "an NCCL comm", COMM_RANKS_MAX, err))
        return -1;
    if (!options->device || !options->device_ops || strcmp(options->device_ops->name, "cuda") != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "NCCL moves memory of the cuda device only, not %s; use comm host",
                         options->device_ops ? options->device_ops->name : "(none)");
    if (options->size > 1 && (!options->store || !options->key))
        return error_set(err, MUSTER_E_INVALID, "%d ranks need a store and a key to find each other",
                         options->size);
    if (options->timeout_ns <= 0)
        return error_set(err, MUSTER_E_INVALID, "a time-out of %lld ns: must be above 0",
                         (long long)options->timeout_ns);
    return 0;
}

/* Rank 0's goes through the store to all. */
static int share_id(struct nccl_comm *comm, ncclUniqueId *id, struct muster_error *err)
{
    if (comm->comm.size == 1)
        return 0;
    if (comm_board_open(&comm->board, err))
        return -1;
    if (comm->comm.rank > 0)
        return comm_board_get(&comm->board, "id", 0, "has not published its NCCL id", id, sizeof *id, err);
    return comm_board_put(&comm->board, "id", id, sizeof *id, err);
}

/* Blocks of NCCL's kernels at most, each on a multiprocessor of its own; products are planned for the others.
 * NCCL's variables come first. No GPU has shown the number. */
enum { NCCL_BLOCKS = 16 };

static int64_t nccl_variable(const char *name)
{
    const char *text = getenv(name);
    int64_t value = 0;
    return text && text_int64(text, &value) && value > 0 ? value : 0;
}

static int blocks_of_nccl(bool *by_variable)
{
    const int64_t most = nccl_variable("NCCL_MAX_CTAS"), least = nccl_variable("NCCL_MIN_CTAS");
    *by_variable = most || least;
    return (int)(most ? most : least > NCCL_BLOCKS ? least : NCCL_BLOCKS);
}

/* Parts take the buffers and channels of the communicator that they are split from: all operations of a
 * family run one after another. NCCL leaves multiprocessors to products where bandwidth allows it; its own
 * variables (NCCL_CTA_POLICY, NCCL_MAX_CTAS) come first. A library older than a field does not read it. */
static ncclConfig_t config_of(const struct nccl_family *family, bool part)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = part && family->blocking;
    config.splitShare = family->by_schedule;
    config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
    bool by_variable;
    const int blocks = blocks_of_nccl(&by_variable);
    if (!by_variable)
        config.maxCTAs = blocks;
    return config;
}

/* The communicator of part, which is complete but for it. comm: the comm that is split; NULL: the base, which
 * does not block and has the first comm's members. */
static int make_part(struct nccl_comm *comm, struct nccl_comm *part, int key, struct muster_error *err)
{
    struct nccl_family *family = part->family;
    const bool of_base = family->blocking && (!comm || !comm->number);
    ncclConfig_t config = config_of(family, true);
    const int64_t timeout_ns = (comm ? comm : part)->comm.timeout_ns;
    struct instant deadline = instant_add(clock_now(NULL), timeout_ns);
    (void)pthread_mutex_lock(&family->lock);
    ncclComm_t handle = of_base ? family->base : comm->handle;
    if (!of_base)
        nccl_family_enter(family, comm, (struct nccl_inside){"split", .limit_ns = timeout_ns});
    ncclResult_t result = handle ? family->calls->split(handle, part->color, key,
                                                        &family->makings[part->number].handle, &config)
                                 : ncclInternalError;
    if (!of_base)
        nccl_family_leave(family, comm);
    bool failed = result != ncclSuccess && result != ncclInProgress;
    if (failed && handle)
        (void)nccl_error(family->calls, handle, result, "ncclCommSplit", err);
    (void)pthread_mutex_unlock(&family->lock);
    if (nccl_family_check(family, err))
        return -1;
    if (!handle)
        return nccl_family_ended(family, "ncclCommSplit", err);
    if (failed)
        return nccl_peers_reason(family, result, err);
    /* The old communicator's state covers the split, and only then the new one's handle is there. */
    if (nccl_peers_wait(family, handle, deadline, "splitting the communicator", err))
        return -1;
    (void)pthread_mutex_lock(&family->lock);
    nccl_family_take(family, part->number, &part->handle);
    ncclComm_t made = part->handle;
    (void)pthread_mutex_unlock(&family->lock);
    if (!made)
        return nccl_family_check(family, err)
                   ? -1
                   : error_set(err, MUSTER_E_STATE, "ncclCommSplit left no communicator and no error");
    return nccl_peers_wait(family, made, deadline, "making the part's communicator", err);
}

static int make_first(struct nccl_comm *comm, ncclUniqueId id, struct muster_error *err)
{
    struct nccl_family *family = comm->family;
    ncclConfig_t config = config_of(family, false);
    const int number = family->blocking ? NCCL_BASE : comm->number;
    ncclComm_t *first = family->blocking ? &family->base : &comm->handle;
    comm->board.deadline = instant_add(clock_now(NULL), comm->comm.timeout_ns);
    if (share_id(comm, &id, err) || nccl_family_check(family, err))
        return -1;
    (void)pthread_mutex_lock(&family->lock);
    ncclResult_t result =
        family->calls->init(&family->makings[number].handle, comm->comm.size, id, comm->comm.rank, &config);
    nccl_family_take(family, number, first);
    ncclComm_t handle = *first;
    bool failed = result != ncclSuccess && result != ncclInProgress;
    if (failed)
        (void)nccl_error(family->calls, NULL, result, "ncclCommInitRankConfig", err);
    (void)pthread_mutex_unlock(&family->lock);
    if (failed)
        return nccl_peers_reason(family, result, err);
    if (nccl_peers_wait(family, handle, comm->board.deadline, "making the communicator", err))
        return -1;
    return family->blocking ? make_part(NULL, comm, comm->comm.rank, err) : 0;
}

/* Prepares a rank before it meets the others; id: of rank 0 alone. */
static struct nccl_comm *nccl_prepare(const struct comm_options *options, ncclUniqueId *id,
                                      struct muster_error *err)
{
    struct nccl_family *family = nccl_family_create(options, err);
    struct nccl_comm *made = family ? allocate(family, options, 0, NULL, err) : NULL;
    ncclResult_t result = made && options->rank == 0 ? family->calls->unique_id(id) : ncclSuccess;
    if (result == ncclSuccess)
        return made;
    (void)nccl_error(family->calls, NULL, result, "ncclGetUniqueId", err);
    nccl_destroy(&made->comm);
    return NULL;
}

/* Before any rank waits for another in another way: can all of them? */
static int agree_to_meet(const struct comm_options *options, bool prepared, struct muster_error *err)
{
    char key[COMM_NAME];
    (void)snprintf(key, sizeof key, "%s/nccl", options->key ? options->key : ""); /* cut alike on all */
    const struct agree_options meeting = {.store = options->store,
                                          .key = key,
                                          .rank = options->rank,
                                          .size = options->size,
                                          .timeout_ns = options->timeout_ns};
    return agree(&meeting, prepared ? 0 : -1, err);
}

static struct comm *nccl_create(const struct comm_options *options, struct muster_error *err)
{
    struct muster_error error = {0}; /* the caller may not want it, but the others do */
    ncclUniqueId id = {{0}};
    if (nccl_check_options(options, err))
        return NULL;
    struct nccl_comm *made = nccl_prepare(options, &id, &error);
    GUARD(guard_comm) struct comm *comm = made ? &made->comm : NULL;
    const bool met = !agree_to_meet(options, made != NULL, &error);
    if (made && met && !nccl_watch_connect(made->family, options, &error) && !make_first(made, id, &error)) {
        bool by_variable;
        if (options->size > 1 && options->device_ops->leave)
            options->device_ops->leave(options->device, blocks_of_nccl(&by_variable));
        return take_pointer(&comm);
    }
    (void)error_wrap(&error, "comm %s, rank %d", options->key ? options->key : "alone", options->rank);
    if (made)
        nccl_family_fail(made->family, &error);
    if (err)
        *err = error;
    return NULL;
}

/* ---- the end ---- */

static void nccl_destroy(struct comm *comm)
{
    if (!comm)
        return;
    struct nccl_comm *nccl = nccl_comm_of(comm);
    struct nccl_family *family = nccl->family;
    (void)pthread_mutex_lock(&family->lock);
    (void)nccl_look_advance(nccl, NULL);
    (void)pthread_mutex_unlock(&family->lock);
    nccl_peers_leave(family, nccl);
    nccl_end_comm(nccl);
    nccl_family_remove(family, nccl);
    free_events(nccl);
    nccl_watch_drop(family);
    free_object(nccl);
}

/* ---- splitting ---- */

/* In slices, between which another rank's failure shows: a rank that failed before its vote never votes. */
static int await_vote(struct nccl_comm *comm, const char *what, int rank, struct comm_vote *vote,
                      struct muster_error *err)
{
    struct comm_board slice = comm->board;
    for (;;) {
        const struct instant now = clock_now(NULL);
        slice.deadline = instant_min(comm->board.deadline, instant_add(now, NCCL_VOTE_NS));
        if (!comm_board_get(&slice, what, rank, "splits another comm or uses another name", vote,
                            sizeof *vote, err))
            return 0;
        if (err->code != MUSTER_E_TIMEOUT || instant_reached(now, comm->board.deadline) ||
            nccl_family_check(comm->family, err))
            return -1;
    }
}

/* Exchanges every rank's color and key; votes has size entries, and ours is filled in. */
static int nccl_vote(struct nccl_comm *comm, const char *name, struct comm_vote *votes,
                     struct muster_error *err)
{
    char what[COMM_NAME];
    int me = comm->comm.rank;
    if (snprintf(what, sizeof what, "%u-%s", comm->splits, name) >= COMM_NAME)
        return error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
    comm->board.deadline = instant_add(clock_now(NULL), comm->comm.timeout_ns);
    if (!comm->board.generation && comm_board_open(&comm->board, err))
        return -1;
    if (comm_board_put(&comm->board, what, &votes[me], sizeof *votes, err))
        return -1;
    for (int rank = 0; rank < comm->comm.size; rank++) {
        if (await_vote(comm, what, rank, &votes[rank], err))
            return -1;
    }
    return 0;
}

static struct comm *split_voted(struct nccl_comm *comm, const struct comm_vote *votes, int *members,
                                const char *name, struct muster_error *err)
{
    char full[COMM_NAME];
    struct comm_vote mine = votes[comm->comm.rank];
    int rank, size = comm_members(votes, comm->comm.size, comm->comm.rank, members, &rank);
    if (snprintf(full, sizeof full, "%s/%u-%s.%d", comm->comm.name, comm->splits, name, mine.color) >=
        COMM_NAME) {
        (void)error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
        return NULL;
    }
    struct comm_options options = comm_part_options(&comm->comm, rank, size, full);
    options.store = comm->board.store;
    (void)pthread_mutex_lock(&comm->family->lock);
    comm->family->references++;
    (void)pthread_mutex_unlock(&comm->family->lock);
    for (int i = 0; i < size; i++)
        members[i] = comm->members[members[i]];
    struct nccl_comm *part = allocate(comm->family, &options, mine.color, members, err);
    GUARD(guard_comm) struct comm *made = part ? &part->comm : NULL;
    if (!part) {
        nccl_family_fail(comm->family, err); /* the others wait in the split */
        return NULL;
    }
    if (!make_part(comm, part, mine.key, err))
        return take_pointer(&made);
    nccl_family_fail(comm->family, err); /* the others wait in the split */
    return NULL;
}

static struct comm *nccl_split(struct comm *comm, int color, int key, const char *name,
                               struct muster_error *err)
{
    struct nccl_comm *nccl = nccl_comm_of(comm);
    struct muster_error error = {0};
    scope_free struct comm_vote *votes = mem_calloc((size_t)comm->size, sizeof *votes);
    scope_free int *members = mem_calloc((size_t)comm->size, sizeof *members);
    struct comm *part = NULL;
    if (!votes || !members) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to split comm %s", comm->name);
        return NULL;
    }
    if (color < 0) {
        (void)error_set(err, MUSTER_E_INVALID, "splitting comm %s: color %d; NCCL's are 0 or more",
                        comm->name, color);
        return NULL;
    }
    nccl->splits++;
    votes[comm->rank] = (struct comm_vote){color, key};
    if (nccl_family_use(nccl->family, &error))
        nccl_family_fail(nccl->family, &error); /* the others would wait for our vote */
    if (!nccl_family_check(nccl->family, &error) &&
        (comm->size == 1 || !nccl_vote(nccl, name, votes, &error)))
        part = split_voted(nccl, votes, members, name, &error);
    if (!part && err) {
        *err = error;
        (void)error_wrap(err, "splitting comm %s into %s", comm->name, name);
    }
    return part;
}

/* ---- status, report, abort ---- */

static void nccl_status(struct comm *comm, struct comm_status *out)
{
    struct nccl_comm *nccl = nccl_comm_of(comm);
    (void)pthread_mutex_lock(&nccl->family->lock);
    (void)nccl_look_advance(nccl, NULL); /* the thread that watches meets the same error */
    comm_status_begin(comm, out);
    int slot = (int)(out->finished % COMM_CALLS);
    bool waits = out->finished < out->issued;
    if (waits && comm_is_pair(comm->calls[slot].op.kind))
        comm_status_add(out, comm->calls[slot].op.root);
    else if (waits && nccl->missing_for == nccl->place[slot]) {
        for (int i = 0; i < nccl->missing_count; i++)
            comm_status_add(out, nccl->missing[i]);
    }
    (void)pthread_mutex_unlock(&nccl->family->lock);
}

static int report(struct comm *comm, struct buffer *out)
{
    struct nccl_family *family = nccl_comm_of(comm)->family;
    (void)pthread_mutex_lock(&family->lock);
    if (family->report)
        buffer_printf(out, "NCCL's RAS service on %s:\n%s%s", family->name, family->report,
                      family->report[strlen(family->report) - 1] == '\n' ? "" : "\n");
    (void)pthread_mutex_unlock(&family->lock);
    return out->failed ? -1 : 0;
}

static void nccl_abort(struct comm *comm)
{
    struct muster_error error = {0};
    (void)error_set(&error, MUSTER_E_CANCELLED, "comm %s was aborted on rank %d", comm->name, comm->rank);
    nccl_family_fail(nccl_comm_of(comm)->family, &error);
}

/* Up to the last look of the thread that watches. */
static int64_t busy_ns(struct comm *comm)
{
    struct comm_status ignored;
    nccl_status(comm, &ignored);
    return comm_busy_ns(comm);
}

const struct comm_ops *comm_nccl(void)
{
    static const struct comm_ops ops = {
        .abi = COMM_ABI,
        .size = sizeof ops,
        .name = "nccl",
        .serial = true,
        .adds_apart = true,
        .create = nccl_create,
        .destroy = nccl_destroy,
        .split = nccl_split,
        .issue = nccl_issue,
        .exchange = nccl_exchange,
        .run = nccl_run,
        .status = nccl_status,
        .busy_ns = busy_ns,
        .abort = nccl_abort,
        .report = report,
    };
    return &ops;
}
