/* world.c - joining and leaving the world: see muster.h and world_environment.h. */
#include "runtime/world/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "kernels/ready.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/processor/processor.h"
#include "proto/world/world_environment.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_client.h"
#include "rendezvous/tcpstore/tcpstore_server.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_shm_internal.h"
#include "runtime/world/agree.h"
#include "runtime/world/regroup.h"
#include "runtime/world/sized.h"
#include "runtime/world/world_internal.h"

#define TIMEOUT_NS (300 * NS_PER_S)
#define LEAVE_NS   (1 * NS_PER_S)

struct muster_world {
    bool has_key; /* the job has a secret */
    unsigned char key[MAC_KEY_SIZE];
    struct world_place place;
    int64_t timeout_ns;
    struct tcpstore_server *server; /* rank 0 where no agent serves */
    struct tcpstore_client *client; /* NULL in a world of one */
    struct kv_store store;
    int cut; /* a descriptor of the client's connection, by which another thread ends its calls; -1: none */
    struct world_comm *comm;           /* for reduce and broadcast: made by the first call */
    struct regroup *regroup;           /* this rank can stay; NULL: it is not registered */
    bool goes_anywhere;                /* takes another place than its own */
    bool own_environment;              /* ranks may be threads of one process */
    const struct muster_world *parent; /* the world that this one was split from; its store is used */
    char prefix[64];                   /* in front of this part's keys in that store */
    int64_t splits;
};

const char *muster_error_text(const struct muster_error *err)
{
    return err->text;
}

const char *muster_version(void)
{
    return MUSTER_VERSION;
}

const char *muster_fit_processor(void)
{
    return kernels_cpu_blas();
}

const char *muster_processor_note(void)
{
    const char *note = kernels_cpu_blas_note();
    return *note ? note : kernels_cpu_bound();
}

static const char *from_process(void *context, const char *name)
{
    (void)context; /* the process has one environment */
    return getenv(name);
}

static void release(struct muster_world *world)
{
    if (!world)
        return;
    regroup_end(world->regroup);
    if (world->cut >= 0)
        (void)close(world->cut); /* nothing was written to it */
    world_comm_destroy(world->comm);
    tcpstore_client_destroy(world->client);
    tcpstore_server_destroy(world->server);
    mem_free(world);
}
GUARD_DEFINE(world, struct muster_world *, release);

/* ---- joining ---- */

static int serve(struct muster_world *world, struct muster_error *err)
{
    const struct tcpstore_server_options options = {.port = world->place.master_port,
                                                    .key = world->has_key ? world->key : NULL,
                                                    .limits.total_bytes =
                                                        tcpstore_budget((size_t)world->place.size)};
    if (tcpstore_server_start(&options, &world->server, err))
        return error_wrap(err, "rank 0 serves the store itself on MASTER_PORT %u (no launcher serves one)",
                          world->place.master_port);
    return 0;
}

static int join(struct muster_world *world, struct muster_error *err)
{
    const struct world_place *place = &world->place;
    if (place->rank == 0 && !place->agent_store && serve(world, err))
        return -1;
    /* Stores of other launchers keep their keys over a restart, so every attempt uses keys of its own. */
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "muster/%lld.%lld", (long long)place->round,
                   (long long)place->restarts); /* fits: two numbers of at most 19 digits */
    const struct tcpstore_client_options options = {.host = place->master_addr,
                                                    .port = place->master_port,
                                                    .prefix = prefix,
                                                    .key = world->has_key ? world->key : NULL,
                                                    .timeout_ns = world->timeout_ns,
                                                    .is_over = world->regroup ? regroup_is_told : NULL,
                                                    .context = world->regroup};
    world->client = tcpstore_client_connect(&options, err);
    if (!world->client)
        return error_wrap(err, "rank %d of %d", place->rank, place->size);
    world->store = tcpstore_client_kv(world->client);
    return 0;
}

static int read_options(const struct muster_world_options *given, struct muster_world_options *options,
                        struct muster_error *err)
{
    *options = (struct muster_world_options){0};
    if (given && sized_in("muster_world_options", options, sizeof *options, given, given->size,
                          sizeof *options, err) < 0)
        return -1;
    if (options->timeout_ms < 0 || options->timeout_ms > INT64_MAX / NS_PER_MS)
        return error_set(err, MUSTER_E_INVALID, "timeout_ms is %lld, but must be from 0 to %lld",
                         (long long)options->timeout_ms, (long long)(INT64_MAX / NS_PER_MS));
    return 0;
}

struct muster_world *muster_world_open(const struct muster_world_options *given, struct muster_error *err)
{
    struct muster_world_options all, *options = &all;
    if (processor_check(err) || read_options(given, options, err))
        return NULL;
    GUARD(guard_world) struct muster_world *world = mem_calloc(1, sizeof *world);
    if (!world) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a world");
        return NULL;
    }
    world->cut = -1;
    bool own = world->own_environment = options->get_environment != NULL;
    world->timeout_ns = options->timeout_ms ? options->timeout_ms * NS_PER_MS : TIMEOUT_NS;
    if (world_place_read(own ? options->get_environment : from_process, own ? options->context : NULL,
                         &world->place, err))
        return NULL;
    if (world->place.size > 1) {
        const int key = store_key_read(own ? options->get_environment : from_process,
                                       own ? options->context : NULL, world->key, err);
        world->has_key = key > 0;
        if (key < 0 || join(world, err))
            return NULL;
    }
    return take_pointer(&world);
}

/* ---- leaving ---- */

/* A server that exits at once would cut off answers to other ranks. A rank that fails here is leaving
 * anyway, so errors change nothing. */
static void say_goodbye(struct muster_world *world)
{
    int64_t left = 0;
    scope_buffer nothing = {0};
    const struct kv_store *s = &world->store;
    if (s->add(s->ctx, "left", 1, &left, NULL))
        return;
    if (left == world->place.size)
        (void)s->set(s->ctx, "all-left", "1", 1, NULL); /* see above */
    else if (world->server)
        (void)s->get(s->ctx, "all-left", &nothing, LEAVE_NS, NULL); /* see above */
}

void muster_world_close(struct muster_world **world)
{
    if (!world || !*world)
        return;
    if ((*world)->parent)
        (void)world_hold(*world, NULL, *world, NULL); /* removing does not fail */
    regroup_end(take_pointer(&(*world)->regroup));
    world_comm_destroy(take_pointer(&(*world)->comm)); /* before the store goes */
    if ((*world)->client)
        say_goodbye(*world);
    release(*world);
    *world = NULL;
}

/* ---- staying ---- */

/* The world that a part was split from first: its launcher's word is for all parts. */
static struct muster_world *root_of(const struct muster_world *world)
{
    while (world->parent)
        world = world->parent;
    return (struct muster_world *)world; /* the caller's, who has opened it */
}

bool world_is_part(const struct muster_world *world)
{
    return world->parent != NULL;
}

static void let_go(void *context)
{
    const struct muster_world *world = context;
    if (world->comm)
        world_comm_abort(world->comm);
    if (world->cut >= 0)
        (void)shutdown(world->cut,
                       SHUT_RDWR); /* its round is over; the next one has a connection of its own */
}

/* Calls of the store end with the round, too: a rank that was started for it may be lost before it has come.
 */
static int make_cut(struct muster_world *world, struct muster_error *err)
{
    const int cut =
        world->client ? tcpstore_client_duplicate(world->client, err) : -1; /* one rank has none */
    regroup_lock(world->regroup);
    const int before = world->cut;
    world->cut = cut;
    regroup_unlock(world->regroup);
    if (before >= 0)
        (void)close(before);
    return world->client && cut < 0 ? -1 : 0;
}

int muster_world_stay(struct muster_world *world, struct muster_error *err)
{
    if (!world || world->regroup || !world->place.agent_store || world->parent || world->own_environment)
        return world && world->regroup;
    const int stays = regroup_listen(world->place.round, &world->regroup, err);
    if (stays <= 0 || (make_cut(world, err) == 0 && regroup_hold(world->regroup, let_go, world, err) == 0))
        return stays;
    regroup_end(take_pointer(&world->regroup)); /* it gives no answer, and is started anew */
    return -1;
}

int world_stay(struct muster_world *world, struct muster_error *err)
{
    struct muster_world *root = root_of(world);
    const int stays = muster_world_stay(root, err);
    return stays > 0 && root != world && regroup_hold(root->regroup, let_go, world, err) < 0 ? -1 : stays;
}

int muster_world_stay_spare(struct muster_world *world, struct muster_error *err)
{
    static const enum regroup_case cases[] = {REGROUP_MOVES, REGROUP_RESIZES, REGROUP_GROWS};
    const int stays = muster_world_stay(world, err);
    for (size_t i = 0; stays > 0 && i < sizeof cases / sizeof *cases; i++)
        if (world_stays_also(world, cases[i], err) < 0)
            return -1;
    return stays;
}

int world_hold(const struct muster_world *world, void (*let_go_of)(void *context), void *context,
               struct muster_error *err)
{
    struct regroup *regroup = world ? root_of(world)->regroup : NULL;
    return regroup ? regroup_hold(regroup, let_go_of, context, err) : 0;
}

int world_stays_also(struct muster_world *world, enum regroup_case which, struct muster_error *err)
{
    struct muster_world *root = world ? root_of(world) : NULL;
    if (!root || !root->regroup)
        return 0;
    root->goes_anywhere |= which == REGROUP_RESIZES;
    return regroup_also(root->regroup, which, err);
}

void world_busy(const struct muster_world *world)
{
    if (world)
        (void)regroup_busy(root_of(world)->regroup);
}

void world_ready(const struct muster_world *world)
{
    if (world)
        regroup_ready(root_of(world)->regroup);
}

int muster_world_rejoin(struct muster_world *world, int64_t wait_ns, struct muster_error *err)
{
    const int rank = world->place.rank, size = world->place.size;
    if (!world->regroup)
        return 0;
    const int placed = regroup_await(world->regroup, wait_ns, &world->place, err);
    if (!placed)
        return 0;
    regroup_lock(world->regroup);
    struct world_comm *comm = take_pointer(&world->comm);
    regroup_unlock(world->regroup);
    world_comm_destroy(comm);
    if (placed < 0)
        return -1;
    tcpstore_client_destroy(take_pointer(&world->client));
    world->splits = 0;
    if (!world->goes_anywhere && (world->place.rank != rank || world->place.size != size))
        return error_set(err, MUSTER_E_STATE, "rank %d of %d would be rank %d of %d after a regroup", rank,
                         size, world->place.rank, world->place.size);
    if (join(world, err) < 0 || make_cut(world, err) < 0 ||
        regroup_hold(world->regroup, let_go, world, err) < 0) /* cuts at once if the next word has come */
        return -1;
    regroup_ready(world->regroup); /* until the next communicator is made, see regroup_busy */
    return 1;
}

/* ---- being there ---- */

int muster_world_rank(const struct muster_world *world)
{
    return world->place.rank;
}

int muster_world_size(const struct muster_world *world)
{
    return world->place.size;
}

int muster_world_elastic(const struct muster_world *world)
{
    return world->place.elastic;
}

int muster_world_local_rank(const struct muster_world *world)
{
    return world->place.local_rank;
}

int muster_world_local_size(const struct muster_world *world)
{
    return world->place.local_size;
}

const struct kv_store *world_store(const struct muster_world *world)
{
    return world->place.size > 1 ? &world->store : NULL;
}

int64_t world_timeout_ns(const struct muster_world *world)
{
    return world ? world->timeout_ns : TIMEOUT_NS;
}

bool world_has_past(const struct muster_world *world)
{
    while (world && world->parent)
        world = world->parent;
    return world && world->place.round > 0;
}

int world_address(const struct muster_world *world, char out[WORLD_ADDRESS], struct muster_error *err)
{
    while (world->parent)
        world = world->parent;
    (void)snprintf(out, WORLD_ADDRESS, "127.0.0.1");
    return world->client ? tcpstore_client_address(world->client, out, WORLD_ADDRESS, err) : 0;
}

int muster_world_barrier(struct muster_world *world, struct muster_error *err)
{
    const struct agree_options options = {.store = world_store(world),
                                          .key = "barrier",
                                          .rank = world->place.rank,
                                          .size = world->place.size,
                                          .timeout_ns = world->timeout_ns};
    return agree(&options, 0, err) ? error_wrap(err, "barrier of the world") : 0;
}

int muster_world_agree(struct muster_world *world, int32_t failed, struct muster_error *err)
{
    if (!world)
        return failed ? -1 : 0;
    const struct agree_options options = {.store = world_store(world),
                                          .key = "agreement",
                                          .rank = world->place.rank,
                                          .size = world->place.size,
                                          .timeout_ns = world->timeout_ns};
    return agree(&options, failed, err);
}

static const char end_key[] = "work-ended";

int muster_world_end(struct muster_world *world, struct muster_error *err)
{
    const struct kv_store *store = world ? world_store(world) : NULL;
    return store ? store->set(store->ctx, end_key, "1", 1, err) : 0;
}

int muster_world_ended(struct muster_world *world, int64_t wait_ns, struct muster_error *err)
{
    const struct kv_store *store = world ? world_store(world) : NULL;
    struct muster_error local = {0};
    scope_buffer nothing = {0};
    if (!store || !store->get(store->ctx, end_key, &nothing, wait_ns, &local))
        return 1;
    if (local.code == MUSTER_E_TIMEOUT)
        return 0;
    return error_set(err, local.code, "waiting for the ranks that have work: %s", local.text);
}

/* ---- collectives ---- */

static int run_collective(struct muster_world *world, const struct comm_op *op, void *data,
                          struct muster_error *err)
{
    const struct world_place *place = &world->place;
    char address[WORLD_ADDRESS];
    if (!world->comm) {
        if (world_address(world, address, err))
            return -1;
        const struct world_comm_options options = {.rank = place->rank,
                                                   .size = place->size,
                                                   .local_rank = place->local_rank,
                                                   .local_size = place->local_size,
                                                   .store = &world->store,
                                                   .address = address,
                                                   .timeout_ns = world->timeout_ns};
        const bool busy =
            regroup_busy(root_of(world)->regroup); /* until the creation has ended, with the store */
        struct world_comm *comm = world_comm_create(&options, err);
        regroup_lock(root_of(world)->regroup);
        world->comm = comm;
        regroup_unlock(root_of(world)->regroup);
        if (!busy)
            regroup_ready(root_of(world)->regroup);
    }
    return world->comm ? world_comm_run(world->comm, op, data, err) : -1;
}

static int check_data(const char *what, const void *data, int64_t count, struct muster_error *err)
{
    if (count < 0 || (count && !data))
        return error_set(err, MUSTER_E_INVALID, "%s of %lld at %s: there must be 0 or more, in memory", what,
                         (long long)count, data ? "an address" : "NULL");
    return 0;
}

int muster_world_reduce(struct muster_world *world, double *values, int64_t count, int32_t reduction,
                        struct muster_error *err)
{
    if (check_data("a reduction", values, count, err))
        return -1;
    if (reduction != MUSTER_SUM && reduction != MUSTER_MAX)
        return error_set(err, MUSTER_E_INVALID,
                         "reduction is %d, but must be %d (MUSTER_SUM) or %d (MUSTER_MAX)", reduction,
                         MUSTER_SUM, MUSTER_MAX);
    const struct comm_op op = {.kind = COMM_ALL_REDUCE,
                               .dtype = DTYPE_F64,
                               .reduction = reduction == MUSTER_SUM ? REDUCE_SUM : REDUCE_MAX,
                               .count = count};
    if (!world || world->place.size == 1)
        return 0;
    return run_collective(world, &op, values, err) ? error_wrap(err, "reduction over the world") : 0;
}

int muster_world_broadcast(struct muster_world *world, void *data, int64_t bytes, int32_t root,
                           struct muster_error *err)
{
    int size = world ? world->place.size : 1;
    if (check_data("a broadcast", data, bytes, err))
        return -1;
    if (root < 0 || root >= size)
        return error_set(err, MUSTER_E_INVALID, "root is %d, but must be a rank of this world, 0 to %d", root,
                         size - 1);
    const struct comm_op op = {.kind = COMM_BROADCAST, .dtype = DTYPE_U8, .root = root, .count = bytes};
    if (size == 1)
        return 0;
    return run_collective(world, &op, data, err) ? error_wrap(err, "broadcast in the world") : 0;
}

/* ---- splitting ---- */

enum { PART_KEY = 384 };

/* A part's key in its parent's store. */
static int part_key(const struct muster_world *part, const char *key, char out[PART_KEY],
                    struct muster_error *err)
{
    return snprintf(out, PART_KEY, "%s%s", part->prefix, key) < PART_KEY
               ? 0
               : error_set(err, MUSTER_E_LIMIT, "the key %.100s... is too long for a part of a world", key);
}

static int part_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    const struct muster_world *part = ctx;
    const struct kv_store *store = &part->parent->store;
    char whole[PART_KEY];
    return part_key(part, key, whole, err) ? -1 : store->set(store->ctx, whole, data, n, err);
}

static int part_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                    struct muster_error *err)
{
    const struct muster_world *part = ctx;
    const struct kv_store *store = &part->parent->store;
    char whole[PART_KEY];
    return part_key(part, key, whole, err) ? -1 : store->get(store->ctx, whole, out, timeout_ns, err);
}

static bool part_is_gone(void *ctx)
{
    const struct muster_world *part = ctx;
    const struct kv_store *store = &part->parent->store;
    return store->is_gone && store->is_gone(store->ctx);
}

static int part_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    const struct muster_world *part = ctx;
    const struct kv_store *store = &part->parent->store;
    char whole[PART_KEY];
    return part_key(part, key, whole, err) ? -1 : store->add(store->ctx, whole, delta, value, err);
}

/* One rank's values in the sum by which all learn them: color, key, and a hash of its node, of 53 bits. */
enum { SPLIT_COLOR, SPLIT_KEY, SPLIT_NODE, SPLIT_VALUES };

static double node_number(const struct muster_world *world)
{
    const int32_t first = world->place.rank - world->place.local_rank;
    return (double)(text_hash(host_link_machine(), &first, sizeof first) >> 11);
}

/* Our place among the ranks with our color. */
static int place_in_part(const struct muster_world *world, const double *values, struct world_place *place,
                         struct muster_error *err)
{
    const int size = world->place.size, me = world->place.rank;
    scope_free struct comm_vote *votes = mem_calloc((size_t)size, sizeof *votes);
    scope_free int *members = mem_calloc((size_t)size, sizeof *members);
    if (!votes || !members)
        return error_set(err, MUSTER_E_NOMEM, "no memory to split a world");
    for (int rank = 0; rank < size; rank++)
        votes[rank] = (struct comm_vote){(int32_t)values[rank * SPLIT_VALUES + SPLIT_COLOR],
                                         (int32_t)values[rank * SPLIT_VALUES + SPLIT_KEY]};
    *place = world->place;
    place->size = comm_members(votes, size, me, members, &place->rank);
    place->local_rank = place->local_size = 0;
    for (int i = 0; i < place->size; i++) {
        const bool here =
            values[members[i] * SPLIT_VALUES + SPLIT_NODE] == values[me * SPLIT_VALUES + SPLIT_NODE];
        place->local_rank += here && i < place->rank;
        place->local_size += here;
    }
    return 0;
}

struct muster_world *muster_world_split(struct muster_world *world, int32_t color, int32_t key,
                                        struct muster_error *err)
{
    if (!world) {
        (void)error_set(err, MUSTER_E_INVALID, "no world to split: it is NULL");
        return NULL;
    }
    const int size = world->place.size;
    GUARD(guard_world) struct muster_world *part = mem_calloc(1, sizeof *part);
    scope_free double *values = mem_calloc((size_t)size, SPLIT_VALUES * sizeof *values);
    if (part)
        part->cut = -1;
    int failed = part && values ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory to split a world");
    if (muster_world_agree(world, failed, err))
        return NULL;
    double *mine = values + world->place.rank * SPLIT_VALUES;
    mine[SPLIT_COLOR] = color;
    mine[SPLIT_KEY] = key;
    mine[SPLIT_NODE] = node_number(world);
    if (muster_world_reduce(world, values, (int64_t)size * SPLIT_VALUES, MUSTER_SUM, err) ||
        place_in_part(world, values, &part->place, err))
        return NULL;
    part->timeout_ns = world->timeout_ns;
    part->parent = world;
    (void)snprintf(part->prefix, sizeof part->prefix, "part-%lld.%d/", (long long)++world->splits, color);
    part->store = (struct kv_store){
        .set = part_set, .get = part_get, .add = part_add, .is_gone = part_is_gone, .ctx = part};
    return take_pointer(&part);
}
