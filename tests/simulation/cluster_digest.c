/* cluster_digest.c - what rosters and clients say and are after each step, in one number: digests_test.c
 * keeps it. */
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/text.h"
#include "tests/simulation/cluster_internal.h"
#include "tests/support/event_numbers.h"

static void take(struct cluster *cluster, const void *data, size_t size)
{
    cluster->digest = text_hash(cluster->digest, data, size);
}

static void take_number(struct cluster *cluster, int64_t number)
{
    take(cluster, &number, sizeof number);
}

static void take_text(struct cluster *cluster, const char *text)
{
    take(cluster, text, strlen(text) + 1);
}

/* All of it but for the words, which may be put in another way. */
static void take_event(struct cluster *cluster, const struct membership_event *event)
{
    int64_t numbers[EVENT_NUMBERS];
    event_numbers(event, numbers);
    take(cluster, numbers, sizeof numbers);
    take_text(cluster, event->world.master_addr);
    if (!event->failed)
        return;
    take_number(cluster, event->failure.rank);
    take_number(cluster, event->failure.exit_code);
    take_number(cluster, event->failure.age_ns);
    take_text(cluster, event->failure.host);
    for (int i = 0; i < event->other_count; i++) {
        take_number(cluster, event->others[i].rank);
        take_number(cluster, event->others[i].after_ns);
        take_text(cluster, event->others[i].host);
    }
}

void cluster_digest_roster(struct cluster *cluster, const struct roster *roster,
                           const struct roster_actions *actions)
{
    static struct membership_event event;
    scope_buffer line = {0};
    if (!cluster->options.trace)
        return;
    (void)roster_format(roster, &line);
    take(cluster, line.data, line.length);
    take_number(cluster, roster_deadline(roster).ns);
    take_number(cluster, roster_server_done(roster).round);
    take_number(cluster, roster_holds_server(roster));
    take_number(cluster, roster_remote_count(roster));
    for (size_t i = 0; i < actions->count; i++) {
        const struct roster_action *action = &actions->items[i];
        take_number(cluster, action->kind);
        take_number(cluster, (int64_t)action->session);
        take_number(cluster, action->member);
        if (action->kind == ROSTER_SEND_WORLD || action->kind == ROSTER_SEND_STOP ||
            action->kind == ROSTER_SEND_VERDICT || action->kind == ROSTER_REFUSE) {
            roster_fill_event(roster, action, &event);
            take_event(cluster, &event);
        }
    }
}

void cluster_digest_client(struct cluster *cluster, const struct client *client, struct instant now)
{
    if (!cluster->options.trace)
        return;
    take_number(cluster, client_deadline(client).ns);
    take_number(cluster, client_last_received(client).ns);
    take_number(cluster, client_silence_ns(client, now));
    take_number(cluster, client_is_alone(client, now) + 2 * client_server_left(client) +
                             4 * client_has_news(client) + 8 * client_has_joined(client) +
                             16 * client_has_room(client));
}

uint64_t cluster_digest(const struct cluster *cluster)
{
    return cluster->digest;
}
