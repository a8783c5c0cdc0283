/* client_worlds.c - the worlds of a client. It gives out each WORLD and STOP once. It never gives out a WORLD
 * that may be outdated or has no lease, nor a WORLD before the workers of the last world have stopped. It
 * keeps each report of its workers until the server has acknowledged it: a broken connection loses none. */
#include <stdarg.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "rendezvous/client/client_internal.h"

/* --- events --- */

int client_queue_event(struct client *client, const struct membership_event *event, struct muster_error *err)
{
    struct membership_event *place = event_queue_push(&client->queue);
    if (!place)
        return error_set(err, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                         EVENT_QUEUE_LIMIT);
    membership_event_copy(place, event);
    return 0;
}

int client_stop_held(struct client *client, struct muster_error *err, const char *format, ...)
{
    struct membership_event stop = {.kind = MEMBERSHIP_EVENT_STOP, .stopped = client->held};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(stop.reason, sizeof stop.reason, format, arguments);
    va_end(arguments);
    client->stopping = client->held;
    client->held_stops = true;
    client->in_time = false;
    return client_queue_event(client, &stop, err);
}

int client_give_withheld(struct client *client, struct instant now, struct muster_error *err)
{
    bool leased = !client->lease_ns || now.ns < client_lease_limit(client).ns;
    /* A message delayed on its way, or here while this process was suspended, may be outdated. */
    if (client->answered <= client->doubted)
        leased = false;
    if (!client->withheld || client->held.epoch || !leased)
        return 0;
    client->withheld = false;
    client->held = client->world.world.id;
    client->held_stops = false;
    client->ended = 0;
    client->last_world = client->held;
    client->lapsed = false;
    client->last_nodes = client->world.world.group_world_size;
    client->last_rank = client->world.world.group_rank;
    client->restart_count = client->world.world.restart_count;
    client->held_at = client->numbers;
    return client_queue_event(client, &client->world, err);
}

void client_forget_withheld(struct client *client)
{
    if (client->withheld)
        client->newest = client->newest_before;
    client->withheld = false;
}

static bool is_old(const struct client *client, struct world_id id)
{
    return id.epoch == client->newest.epoch && id.round < client->newest.round;
}

/* The server may have lost this agent and got it back without its present workers: a JOIN that crossed the
 * last WORLD on the way. */
int client_on_world(struct client *client, const struct membership_event *event, struct instant now,
                    struct muster_error *err)
{
    struct world_id id = event->world.id;
    if (is_old(client, id) || world_id_equal(client->newest, id))
        return 0;
    if (!client->withheld)
        client->newest_before = client->newest;
    client->newest = id;
    client->withheld = true;
    membership_event_copy(&client->world, event);
    if (client->held.epoch && !client->held_stops &&
        client_stop_held(client, err, "the job goes on with round %u", id.round))
        return -1;
    /* Under a lease that is half over it could end before the next heartbeat is answered. */
    struct instant renewal =
        client->lease_ns ? instant_add(client->lease_from, client->lease_ns / 2) : INSTANT_NEVER;
    if (instant_reached(now, renewal))
        client->doubted = client->numbers;
    if (client_give_withheld(client, now, err))
        return -1;
    struct instant next =
        instant_min(client->send_at, instant_add(now, pace_beat_ns(client->options.join.max_nodes)));
    client->send_at = client->withheld ? now : instant_min(next, renewal);
    return 0;
}

int client_on_stop(struct client *client, const struct membership_event *event, struct instant now,
                   struct muster_error *err)
{
    if (client->held.epoch && world_id_equal(client->held, event->stopped)) {
        if (client->held_stops)
            return 0;
        client->stopping = event->stopped;
        client->held_stops = true;
        client->in_time = event->planned && event->grace_ns > 0;
        return client_queue_event(client, event, err);
    }
    if (world_id_equal(client->stopping, event->stopped) || is_old(client, event->stopped))
        return 0;
    /* A world that never reached this agent, or was withheld, has no workers here; its WORLD, if still to
     * come, is outdated. Workers of a former server's world are to stop anyway. */
    if (event->stopped.epoch == client->epoch) {
        client->stopping = client->newest = event->stopped;
        client->withheld = false;
    }
    return client_report(client, event->stopped, MEMBERSHIP_REPORT_STOPPED, NULL, now, err);
}

/* --- reports --- */

void client_ended(struct client *client, int rank)
{
    client->ended = 1 + rank;
}

static bool send_report(struct client *client, const struct pending_report *report, struct instant now)
{
    client->message.kind = WIRE_REPORT;
    client->message.id = report->id;
    client->message.report = report->kind;
    client->message.sequence = report->sequence;
    (void)report_queue_failure(report, now, &client->message.failure); /* false: nothing to add */
    return client_send_now(client);
}

int client_report(struct client *client, struct world_id id, enum membership_report_kind kind,
                  const struct worker_failure *failure, struct instant now, struct muster_error *err)
{
    const struct pending_report *report =
        report_queue_push(client->reports, id, kind, failure, client->sequence + 1, now);
    if (!report)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a report");
    client->sequence++;
    /* Without a connection it is sent after the next ACCEPT. */
    if (client->joined)
        (void)send_report(client, report, now);
    if (kind == MEMBERSHIP_REPORT_DONE && world_id_equal(client->held, id))
        client->done = true;
    if (kind == MEMBERSHIP_REPORT_STOPPED && world_id_equal(client->held, id)) {
        client->held = (struct world_id){0};
        client->done = false;
        client->join_limit = instant_add(now, client->options.join_timeout_ns);
        return client_give_withheld(client, now, err);
    }
    return 0;
}

void client_send_reports(struct client *client, struct instant now)
{
    /* A report that could not be sent is kept, and sent after the next ACCEPT. */
    for (const struct pending_report *report = client->reports->first; report; report = report->next)
        if (!send_report(client, report, now))
            break;
}

bool client_has_news(const struct client *client)
{
    return client->reports->first != NULL;
}
