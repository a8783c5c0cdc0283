/* client_past.c - an agent's past: passed on to its next server, and to the client that joins that server. */
#include "rendezvous/client/client_internal.h"

void client_fill_known(const struct client *client, struct roster_join *join)
{
    join->held = client->held;
    join->restart_count = client->restart_count;
    join->last = client->last_world;
    join->last_nodes = client->last_nodes;
    join->last_rank = client->last_rank;
    join->epoch = client->epoch;
    join->held_done = client->done;
    join->server_done = client->server_done.epoch && world_id_equal(client->server_done, client->last_world);
    rank_ranges_copy(&join->done, &client->done_ranks);
    join->lapsed = client->lapsed;
    /* A spare of the server that left has an older world, which that server had finished. */
    join->server_left = client->left_epoch && (client->left_epoch == client->last_world.epoch ||
                                               client->left_epoch == client->epoch);
}

void client_note_event(const struct membership_event *event, struct roster_join *past, bool *stops)
{
    if (event->kind == MEMBERSHIP_EVENT_STOP)
        *stops = true;
    if (event->kind != MEMBERSHIP_EVENT_WORLD)
        return;
    *stops = false;
    past->last = event->world.id;
    past->last_nodes = event->world.group_world_size;
    past->last_rank = event->world.group_rank;
    past->restart_count = event->world.restart_count;
    past->held_done = past->server_left = past->server_done = past->lapsed = false;
}

void client_take_past(struct client *client, const struct roster_join *past)
{
    client->held = client->newest = past->held;
    client->held_stops = client->options.stops && past->held.epoch;
    client->stopping = client->held_stops ? past->held : (struct world_id){0};
    client->server_done = past->server_done ? past->last : (struct world_id){0};
    rank_ranges_copy(&client->done_ranks, &past->done);
    client->done = past->held_done;
    client->last_world = past->last;
    client->last_nodes = past->last_nodes;
    client->last_rank = past->last_rank;
    client->restart_count = past->restart_count;
    client->epoch = past->epoch;
    client->left_epoch = past->server_left ? past->epoch : 0;
    client->lapsed = past->lapsed;
    client->ever_joined = past->epoch != 0;
}
