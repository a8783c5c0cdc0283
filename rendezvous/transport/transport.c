/* transport.c - makes from a membership's options its JOIN, and the roster if it hosts it. See transport.h.
 */
#include <sys/random.h>

#include "proto/base/error.h"
#include "rendezvous/transport/transport.h"

int transport_random_bytes(void *out, size_t size, struct muster_error *err)
{
    if (getrandom(out, size, 0) != (ssize_t)size)
        return error_errno(err, "cannot get %zu random bytes", size);
    return 0;
}

struct roster_join membership_join(const struct membership *m, bool local)
{
    return (struct roster_join){
        .protocol_version = ROSTER_PROTOCOL_VERSION,
        .job_id = m->options.job_id,
        .min_nodes = m->options.min_nodes,
        .max_nodes = m->options.max_nodes,
        .elastic = m->options.elastic,
        .agent_name = m->options.agent_name,
        .node_rank = m->options.node_rank,
        .incarnation = m->incarnation,
        .local_world_size = m->options.local_world_size,
        .role = m->options.role,
        .program = m->options.program,
        .command = m->options.command,
        .contents = m->options.contents,
        .endpoints = m->options.endpoints,
        .store_addr = m->options.store_addr,
        .store_port = m->options.store_port,
        .vote_addr = m->options.vote_addr,
        .vote_port = m->options.vote_port,
        .local = local,
        .held = m->current,
    };
}

struct roster *membership_make_roster(const struct membership *m, const struct world_record *known,
                                      const struct voter *lost, struct muster_error *err)
{
    struct roster_options options = {
        .job_id = m->options.job_id,
        .min_nodes = m->options.min_nodes,
        .max_nodes = m->options.max_nodes,
        .elastic = m->options.elastic,
        .max_restarts = m->options.max_restarts,
        .restart_count = m->options.restart_count,
        .exit_barrier_ns = m->options.exit_barrier_ns,
        .backoff_ns = m->options.backoff_ns,
        .backoff_cap_ns = m->options.backoff_cap_ns,
        .last_call_ns = m->options.last_call_ns,
        .regroup_ns = m->options.regroup_ns,
        .notice_ns = m->options.notice_ns,
        .join_timeout_ns = m->options.join_timeout_ns,
        .stop_timeout_ns = m->options.stop_timeout_ns,
        .votes = known != NULL,
        .continues = known && known->epoch,
        .before = known && known->epoch ? &known->voters[0] : lost,
        .round = known && known->epoch ? known->round + 1 : 0,
    };
    if (transport_random_bytes(&options.epoch, sizeof options.epoch, err) ||
        transport_random_bytes(&options.jitter, sizeof options.jitter, err))
        return NULL;
    options.epoch |= 1; /* 0 is no world */
    return roster_create(&options, clock_now(m->options.clock), err);
}

void membership_announce(const struct membership_options *options, struct roster *roster,
                         struct world_id *announced)
{
    struct world_id id = roster_world_id(roster);
    if (!id.epoch || world_id_equal(id, *announced))
        return;
    *announced = id;
    uint16_t port = options->world_forms ? options->world_forms(options->context, id) : 0;
    if (port)
        roster_move_store(roster, port);
}
