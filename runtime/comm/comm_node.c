/* comm_node.c - the comm over nodes as an object: creation, splitting, status, abort. See comm_node.h. */
#include "runtime/comm/comm_node.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

static void node_destroy(struct comm *comm);
GUARD_DEFINE(node, struct comm *, node_destroy);

/* ---- memory that the node's ranks map ---- */

static void drop_home(struct node_home *home)
{
    if (!home || atomic_fetch_sub(&home->references, 1) > 1)
        return;
    if (home->arena.base)
        (void)munmap(home->arena.base, (size_t)home->arena.bytes); /* our own mapping, whole */
    if (home->arena.fd >= 0)
        (void)close(home->arena.fd); /* nothing can be done about it */
    mem_free(home);
}
GUARD_DEFINE(home, struct node_home *, drop_home);

/* No arena of the device: most of it is never touched, and the device would count all of it. */
static int map_home(struct node_home *home, struct muster_error *err)
{
    struct device_arena *arena = &home->arena;
    *arena = (struct device_arena){.memory = MEMORY_COMM, .fd = memfd_create("muster-node", MFD_CLOEXEC)};
    arena->bytes = (int64_t)NODE_STAGES * (NODE_SHOWN_BYTES + NODE_RESULT_BYTES);
    if (arena->fd < 0 || ftruncate(arena->fd, arena->bytes))
        return error_errno(err, "memory for a node's ranks");
    void *base = mmap(NULL, (size_t)arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
    if (base == MAP_FAILED)
        return error_errno(err, "mapping %lld bytes for a node's ranks", (long long)arena->bytes);
    arena->base = base;
    return 0;
}

static struct node_home *make_home(struct muster_error *err)
{
    GUARD(guard_home) struct node_home *home = mem_calloc(1, sizeof *home);
    if (!home) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    atomic_store(&home->references, 1);
    return map_home(home, err) ? NULL : take_pointer(&home);
}

static int take_stage(struct node_home *home, struct muster_error *err)
{
    for (int stage = 0; stage < NODE_STAGES; stage++) {
        if (!(atomic_fetch_or(&home->taken, UINT64_C(1) << stage) >> stage & 1))
            return stage;
    }
    return error_set(err, MUSTER_E_LIMIT, "a comm has more than %d splits at once", NODE_STAGES - 1);
}

/* ---- groups ---- */

/* A group ends where the node changes, or where a host comm could not take more ranks. */
static bool begins_group(const struct node_comm *node, int rank, int first)
{
    return rank == 0 || node->nodes[rank] != node->nodes[rank - 1] || rank - first >= HOST_RANKS_MAX;
}

static int list_groups(struct node_comm *node, struct muster_error *err)
{
    const int size = node->comm.size;
    node->first = mem_calloc((size_t)size + 1, sizeof *node->first);
    if (!node->first)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the groups of %d ranks", size);
    for (int rank = 0; rank < size; rank++) {
        if (begins_group(node, rank, node->groups ? node->first[node->groups - 1] : 0))
            node->first[node->groups++] = rank;
        if (rank == node->comm.rank)
            node->group = node->groups - 1;
    }
    node->first[node->groups] = size;
    node->rails = NODE_RAILS;
    for (int group = 0; group < node->groups; group++) {
        const int length = node->first[group + 1] - node->first[group];
        node->rails = length < node->rails ? length : node->rails;
    }
    const int length = node_group_size(node);
    node->inside_names = mem_calloc((size_t)length, sizeof *node->inside_names);
    node->rail_names = mem_calloc((size_t)node->groups, sizeof *node->rail_names);
    node->given = mem_calloc((size_t)length, sizeof *node->given);
    if (!node->inside_names || !node->rail_names || !node->given)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the groups of %d ranks", size);
    for (int i = 0; i < length; i++)
        node->inside_names[i] = node->first[node->group] + i;
    for (int group = 0; group < node->groups; group++)
        node->rail_names[group] = node->first[group] + (node->comm.rank - node->first[node->group]);
    return 0;
}

/* In messages, an inner comm is this one. */
static void name_as(struct comm *inner, const struct comm *outer, const int *names)
{
    memcpy(inner->name, outer->name, sizeof inner->name);
    inner->names = names;
}

/* With nodes, wide and local set: the comms of groups and rails. */
static int arrange(struct node_comm *node, struct muster_error *err)
{
    if (list_groups(node, err))
        return -1;
    const int place = node->comm.rank - node->first[node->group];
    const bool whole = node->local->size == node_group_size(node);
    node->inside =
        whole ? node->local : comm_shm()->split(node->local, node->group, node->comm.rank, "group", err);
    if (!node->inside)
        return -1;
    const bool shares = node->groups > 1 && node->groups < node->comm.size;
    if (shares) {
        const bool is_rail = place < node->rails;
        struct comm *rail = comm_tcp()->split(node->wide, is_rail ? place : node->rails + node->comm.rank,
                                              node->comm.rank, "rail", err);
        if (!rail)
            return -1;
        if (is_rail)
            node->rail = rail;
        else
            comm_tcp()->destroy(rail); /* it has this rank alone */
    }
    name_as(node->inside, &node->comm, node->inside_names);
    name_as(node->wide, &node->comm, NULL);
    if (node->rail)
        name_as(node->rail, &node->comm, node->rail_names);
    return 0;
}

/* ---- creation ---- */

/* Takes wide. */
static struct node_comm *allocate_node(const struct comm_options *options, struct node_home *home,
                                       struct comm *wide, struct muster_error *err)
{
    struct node_comm *node = mem_calloc(1, sizeof *node);
    if (!node) {
        comm_tcp()->destroy(wide);
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    comm_init(&node->comm, options, node_run_call);
    node->wide = wide;
    node->home = home;
    atomic_fetch_add(&home->references, 1);
    node->stage = take_stage(home, err);
    node->nodes = mem_calloc((size_t)wide->size, sizeof *node->nodes);
    if (node->stage >= 0 && node->nodes)
        return node;
    if (node->stage >= 0)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the nodes of %d ranks", wide->size);
    node_destroy(&node->comm);
    return NULL;
}

static int gather_nodes(struct node_comm *node, uint64_t mine, struct muster_error *err)
{
    node->nodes[node->comm.rank] = mine;
    return node->comm.size > 1
               ? tcp_gather_records(tcp_comm_of(node->wide), node->nodes, sizeof *node->nodes, err)
               : 0;
}

static struct comm *create_local(const struct node_comm *node, const struct comm_options *options,
                                 struct muster_error *err)
{
    struct device_arena arenas[HOST_ARENAS_MAX];
    char key[COMM_NAME + 32];
    if (options->arena_count < 0 || options->arena_count >= HOST_ARENAS_MAX) {
        (void)error_set(err, MUSTER_E_LIMIT, "%d arenas for a comm over nodes, which takes at most %d",
                        options->arena_count, HOST_ARENAS_MAX - 1);
        return NULL;
    }
    for (int i = 0; i < options->arena_count; i++)
        arenas[i] = options->arenas[i];
    arenas[options->arena_count] = node->home->arena;
    const uint64_t mine = node->nodes[options->rank];
    struct comm_options local = *options;
    (void)snprintf(key, sizeof key, "%s@%016llx", node->comm.name, (unsigned long long)mine); /* fits */
    local.key = key;
    local.arenas = arenas;
    local.arena_count = options->arena_count + 1;
    local.rank = local.size = 0;
    for (int rank = 0; rank < options->size; rank++) {
        local.rank += rank < options->rank && node->nodes[rank] == mine;
        local.size += node->nodes[rank] == mine;
    }
    return comm_shm()->create(&local, err);
}

static struct comm *node_create(const struct comm_options *options, struct muster_error *err)
{
    if (comm_check_options(options, "a comm over nodes", COMM_RANKS_ANY, err))
        return NULL;
    GUARD(guard_home) struct node_home *home = make_home(err);
    struct comm *wide = home ? comm_tcp()->create(options, err) : NULL;
    struct node_comm *node = wide ? allocate_node(options, home, wide, err) : NULL;
    GUARD(guard_node) struct comm *comm = node ? &node->comm : NULL;
    if (!node)
        return NULL;
    const uint64_t mine = text_hash(host_link_machine(), &options->node, sizeof options->node);
    if (gather_nodes(node, mine, err) || !(node->local = create_local(node, options, err)) ||
        arrange(node, err)) {
        (void)error_wrap(err, "comm %s, rank %d", comm->name, comm->rank);
        return NULL;
    }
    return take_pointer(&comm);
}

static void node_destroy(struct comm *comm)
{
    if (!comm)
        return;
    struct node_comm *node = node_comm_of(comm);
    comm_tcp()->destroy(node->rail);
    if (node->inside != node->local)
        comm_shm()->destroy(node->inside);
    comm_shm()->destroy(node->local);
    comm_tcp()->destroy(node->wide);
    if (node->stage >= 0)
        atomic_fetch_and(&node->home->taken, ~(UINT64_C(1) << node->stage));
    drop_home(node->home);
    mem_free(node->nodes);
    mem_free(node->first);
    mem_free(node->inside_names);
    mem_free(node->rail_names);
    mem_free(node->given);
    mem_free(node);
}

/* ---- splitting ---- */

static struct comm *node_split(struct comm *comm, int color, int key, const char *name,
                               struct muster_error *err)
{
    struct node_comm *node = node_comm_of(comm);
    struct comm *wide = comm_tcp()->split(node->wide, color, key, name, err);
    if (!wide)
        return NULL;
    const struct comm_options options = comm_part_options(comm, wide->rank, wide->size, wide->name);
    struct node_comm *part = allocate_node(&options, node->home, wide, err);
    GUARD(guard_node) struct comm *made = part ? &part->comm : NULL;
    if (!part || gather_nodes(part, node->nodes[comm->rank], err) ||
        !(part->local = comm_shm()->split(node->local, color, part->comm.rank, name, err)) ||
        arrange(part, err)) {
        (void)error_wrap(err, "splitting comm %s into %s", comm->name, name);
        return NULL;
    }
    return take_pointer(&made);
}

/* ---- status ---- */

static void add_missing(struct comm_status *out, const struct comm_ops *ops, struct comm *inner)
{
    struct comm_status status;
    if (!inner)
        return;
    ops->status(inner, &status);
    for (int i = 0; i < status.missing_count; i++)
        comm_status_add(out, comm_named(inner, status.missing[i]));
}

static void node_status(struct comm *comm, struct comm_status *out)
{
    struct node_comm *node = node_comm_of(comm);
    comm_status_begin(comm, out);
    add_missing(out, comm_shm(), node->inside);
    add_missing(out, comm_tcp(), node->rail);
    add_missing(out, comm_tcp(), node->wide);
}

static void node_abort(struct comm *comm)
{
    struct node_comm *node = node_comm_of(comm);
    comm_shm()->abort(node->inside);
    if (node->rail)
        comm_tcp()->abort(node->rail);
    comm_tcp()->abort(node->wide);
}

const struct comm_ops *comm_node(void)
{
    static const struct comm_ops ops = {
        .abi = COMM_ABI,
        .size = sizeof ops,
        .name = "node",
        .create = node_create,
        .destroy = node_destroy,
        .split = node_split,
        .issue = comm_call_issue,
        .run = comm_call_run,
        .status = node_status,
        .busy_ns = comm_busy_ns,
        .abort = node_abort,
    };
    return &ops;
}
