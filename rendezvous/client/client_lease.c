/* client_lease.c - the time limits of a client: the lease of its workers, and how long the server may be
 * silent. */
#include "proto/base/error.h"
#include "rendezvous/client/client_internal.h"

void client_renew_lease(struct client *client, uint64_t answered)
{
    if (!answered || answered > client->numbers || client->numbers - answered >= CLIENT_NUMBERS_KEPT)
        return;
    client->answered = answered > client->answered ? answered : client->answered;
    struct instant from = client->sent_at[answered % CLIENT_NUMBERS_KEPT];
    if (client->lease_from.ns < from.ns)
        client->lease_from = from;
}

/* A static world of one voter cannot continue without its serving node, and a new server would have to
 * restart it. With several voters another node takes over, and that server counts the restarts. */
static bool is_hopeless(const struct client *client)
{
    return !client->options.join.elastic && client->gone_at.ns != INT64_MAX && client->last_world.epoch &&
           client->restart_count >= client->options.max_restarts &&
           !world_id_equal(client->server_done, client->last_world);
}

struct instant client_lease_limit(const struct client *client)
{
    return instant_add(client->lease_from, client->lease_ns);
}

struct instant client_lease_end(const struct client *client)
{
    bool bound =
        !client->voted && client->held.epoch && !client->done && (!client->held_stops || client->in_time);
    if (!bound)
        return INSTANT_NEVER;
    struct instant lease = client->lease_ns ? client_lease_limit(client) : INSTANT_NEVER;
    bool runs_on =
        client->held_stops || world_id_equal(client->server_done, client->held) || is_hopeless(client);
    return runs_on ? lease : instant_min(client->gone_at, lease);
}

int client_check_lease(struct client *client, struct instant now, struct muster_error *err)
{
    if (client->over || !instant_reached(now, client_lease_end(client)))
        return 0;
    client->lapsed = client->lease_ns && instant_reached(now, client_lease_limit(client));
    const char *why = client->lease_ns ? "the others may continue without this node"
                                       : "it was lost together with its workers; waiting until it comes back";
    return client_stop_held(client, err, "the server %s has not answered for %.4g s: %s",
                            client->options.server,
                            (double)instant_diff_ns(now, client->last_received) / NS_PER_S, why);
}

/* When the silence of the server becomes an error, if it lasts. Before a world there is nothing to lose:
 * the server may come back until the join timeout, and a server that answers keeps that time itself and
 * reports the missing nodes. */
struct instant client_silence_limit(const struct client *client)
{
    if (client->voted)
        return INSTANT_NEVER;
    struct instant lost = instant_add(client->last_received, client_lost_after_ns(client));
    if (is_hopeless(client))
        return client->gone_at;
    if (client->held.epoch)
        return instant_add(client->last_received, client->options.join_timeout_ns);
    if (client_server_left(client))
        return instant_add(client->last_received, client->options.join_timeout_ns);
    return client->joined && lost.ns > client->join_limit.ns ? lost : client->join_limit;
}

/* What would have helped: a spare is the third voter. */
static const char *describe_lone_voter(const struct client *client)
{
    return client->options.join.elastic && client->last_nodes == 2
               ? "; one of two nodes is no majority: a spare node would do"
               : "";
}

int client_check_silence(const struct client *client, struct instant now, struct muster_error *err)
{
    if (client->over || !instant_reached(now, client_silence_limit(client)))
        return 0;
    if (is_hopeless(client))
        return error_set(
            err, MUSTER_E_PEER, "no message from %s for %.4g s, and no restart is left (%lld of %lld used)",
            client->options.server, (double)instant_diff_ns(now, client->last_received) / NS_PER_S,
            (long long)client->restart_count, (long long)client->options.max_restarts);
    if (client_server_left(client))
        return error_set(
            err, MUSTER_E_PEER, "%s left on SIGTERM and did not come back within %.4g s (--join-timeout)%s",
            client->options.server, (double)instant_diff_ns(now, client->last_received) / NS_PER_S,
            describe_lone_voter(client));
    bool had_world = client->last_world.epoch != 0;
    double waited = (double)(client->held.epoch ? instant_diff_ns(now, client->last_received)
                                                : client->options.join_timeout_ns) /
                    NS_PER_S;
    if (had_world)
        return error_set(err, MUSTER_E_PEER, "%s did not come back within %.4g s (--join-timeout)%s",
                         client->options.server, waited, describe_lone_voter(client));
    return error_set(
        err, MUSTER_E_TIMEOUT, "the server of the job's world at %s %s within %.4g s (--join-timeout)",
        client->options.server, client->ever_joined ? "did not come back" : "did not respond", waited);
}

struct instant client_last_received(const struct client *client)
{
    return client->last_received;
}

int64_t client_silence_ns(const struct client *client, struct instant now)
{
    int64_t silence = instant_diff_ns(now, client->last_received);
    return silence > client_lost_after_ns(client) ? silence : 0;
}

bool client_is_alone(const struct client *client, struct instant now)
{
    return client->ever_joined && !client->left &&
           (instant_reached(now, client->gone_at) || client_silence_ns(client, now) > 0);
}
