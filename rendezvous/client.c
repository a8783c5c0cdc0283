/* client.c - see client.h. */
#include "rendezvous/client.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"
#include "rendezvous/mutation.h"

static const int64_t beat_every_ns = CLIENT_BEAT_MS * NS_PER_MS;
static const int64_t waiting_beat_ns = CLIENT_WAITING_BEAT_MS * NS_PER_MS;
static const int64_t reconnect_ns = NS_PER_S; /* as the server waits for us */
static const int64_t lost_after_ns = CLIENT_LOST_AFTER_MS * NS_PER_MS;

/* Answers that come later renew nothing; 32 s. */
enum { NUMBERS_KEPT = 64 };

struct pending_report {
    struct pending_report *next;
    struct world_id id;
    enum membership_report_kind kind;
    uint64_t sequence;
    struct instant made; /* the failure's age is counted to here */
    struct worker_failure failure;
};

struct client {
    struct client_options options;
    bool seated, ever_seated;
    bool join_sent;  /* while not seated: on this connection, as far as is known */
    bool left, over; /* over: a VERDICT or REFUSED has come */
    int verdict_code;
    struct instant send_at;    /* the next beat or JOIN */
    struct instant heard;      /* the server */
    struct instant woken;      /* client_wake */
    struct instant join_limit; /* of the present wait for a world */
    struct world_id held;      /* of the last WORLD, until STOPPED is reported */
    struct world_id newest;    /* heard of in a WORLD or STOP; what is older is late */
    struct world_id stopping;  /* of the last STOP */
    bool held_stops;           /* the STOP of held was given out; another world's may have come since */
    bool in_time;              /* that STOP leaves workers time to save: they work until then */
    uint64_t sequence;         /* of the last report */
    struct pending_report *first, **last;
    char progress[WIRE_PROGRESS_LIMIT];
    bool done;     /* with the held world */
    bool withheld; /* world has come, but there is no lease to work under, or older workers are to stop first
                    */
    struct world_id newest_before; /* where withheld: newest without it */
    uint64_t epoch;                /* of the server that accepted us last */
    uint64_t left_epoch;           /* of the last server that said FAREWELL; 0: none has */
    struct world_id last_world;    /* world that was given out */
    struct world_id server_done;   /* the world that the server has done its part of */
    int last_nodes, last_rank;
    int64_t restart_count; /* of the last world that was given out, or what FAREWELL said */
    uint64_t held_at;      /* numbers when held was set */
    /* the lease; lease_ns 0: there is none */
    int64_t lease_ns;
    struct instant gone_at;    /* the server, unless it is heard before; never: its connection did not end */
    struct instant lease_from; /* the server has heard of us at that time or later */
    uint64_t numbers;          /* of JOINs and beats */
    uint64_t accepted;         /* the JOIN that was last */
    uint64_t answered;         /* the highest of them that was */
    uint64_t doubted; /* no world is taken before an answer to a later number: there was a gap in what
                         we heard, or a JOIN goes out */
    struct instant sent_at[NUMBERS_KEPT];
    /* what is large, so that the rest lies together */
    struct wire_message message;   /* scratch for what is sent */
    struct membership_event world; /* where withheld */
    struct event_queue queue;
};

static bool send_now(struct client *client)
{
    return client->options.send(client->options.context, &client->message);
}

static int give_withheld(struct client *client, struct instant now, struct muster_error *err);

static void number_message(struct client *client, struct instant now)
{
    client->sent_at[++client->numbers % NUMBERS_KEPT] = now;
    client->message.number = client->numbers;
}

void client_remember(const struct client *client, struct roster_join *join)
{
    join->held = client->held;
    join->restart_count = client->restart_count;
    join->last = client->last_world;
    join->last_nodes = client->last_nodes;
    join->last_rank = client->last_rank;
    join->epoch = client->epoch;
    join->held_done = client->done;
    join->server_done = client->server_done.epoch && world_id_equal(client->server_done, client->last_world);
    /* Who was a spare of the server that left has an older world, which that one had done with. */
    join->server_left =
        client->left_epoch && (client->left_epoch == client->last_world.epoch || client_server_left(client));
}

static void send_join(struct client *client, struct instant now)
{
    number_message(client, now);
    client->doubted = client->numbers - 1; /* what we say here must not be crossed by a world from before */
    client->message.kind = WIRE_JOIN;
    client->message.join = client->options.join;
    client_remember(client, &client->message.join);
    client->join_sent = send_now(client);
}

/* Who waits for the first world only has to be taken for alive. Later on a beat may be what finds the server
 * that is back. */
static int64_t interval(const struct client *client)
{
    bool first = client->seated && !client->last_world.epoch && !client->withheld;
    return first ? waiting_beat_ns : beat_every_ns;
}

static void send_beat(struct client *client, struct instant now)
{
    number_message(client, now);
    client->message.kind = WIRE_BEAT;
    client->message.sequence = 0;
    (void)send_now(client); /* one that does not get out is followed by the next */
}

/* -- the lease
 * ------------------------------------------------------------------------------------------------------ */

static void renew_lease(struct client *client, uint64_t answered)
{
    if (!answered || answered > client->numbers || client->numbers - answered >= NUMBERS_KEPT)
        return;
    client->answered = answered > client->answered ? answered : client->answered;
    struct instant from = client->sent_at[answered % NUMBERS_KEPT];
    if (client->lease_from.ns < from.ns)
        client->lease_from = from;
}

/* A static world cannot do without the node that served it, and a new server of it would have to restart. */
static bool is_hopeless(const struct client *client)
{
    return !client->options.join.elastic && client->gone_at.ns != INT64_MAX && client->last_world.epoch &&
           client->restart_count >= client->options.max_restarts &&
           !world_id_equal(client->server_done, client->last_world);
}

static struct instant lease_limit(const struct client *client)
{
    if (MUTATED(MUTATION_CLOCKS))
        return (struct instant){client->lease_ns}; /* the server's time, plus the lease */
    return instant_add(client->lease_from, client->lease_ns);
}

static struct instant lease_end(const struct client *client)
{
    bool bound = client->held.epoch && !client->done && (!client->held_stops || client->in_time);
    if (!bound || MUTATED(MUTATION_NO_LEASE))
        return INSTANT_NEVER;
    struct instant lease = client->lease_ns ? lease_limit(client) : INSTANT_NEVER;
    bool runs_on =
        client->held_stops || world_id_equal(client->server_done, client->held) || is_hopeless(client);
    return runs_on ? lease : instant_min(client->gone_at, lease);
}

/* -- reports
 * ------------------------------------------------------------------------------------------------------ */

static bool send_report(struct client *client, const struct pending_report *report, struct instant now)
{
    client->message.kind = WIRE_REPORT;
    client->message.id = report->id;
    client->message.report = report->kind;
    client->message.sequence = report->sequence;
    client->message.failure = report->failure;
    client->message.failure.age_ns +=
        instant_diff_ns(now, report->made); /* it may have waited for a connection */
    return send_now(client);
}

static void forget_reports(struct client *client, uint64_t arrived)
{
    while (client->first && client->first->sequence <= arrived) {
        struct pending_report *report = client->first;
        client->first = report->next;
        if (!client->first)
            client->last = &client->first;
        mem_free(report);
    }
}

int client_report(struct client *client, struct world_id id, enum membership_report_kind kind,
                  const struct worker_failure *failure, struct instant now, struct muster_error *err)
{
    struct pending_report *report = mem_calloc(1, sizeof *report);
    if (!report)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a report");
    report->id = id;
    report->kind = kind;
    report->sequence = ++client->sequence;
    report->made = now;
    if (failure)
        report->failure = *failure;
    *client->last = report;
    client->last = &report->next;
    /* Without a connection it goes out after the next ACCEPT. */
    if (client->seated)
        (void)send_report(client, report, now);
    if (kind == MEMBERSHIP_REPORT_DONE && world_id_equal(client->held, id))
        client->done = true;
    if (kind == MEMBERSHIP_REPORT_STOPPED && world_id_equal(client->held, id)) {
        client->held = (struct world_id){0};
        client->done = false;
        client->join_limit = instant_add(now, client->options.join_timeout_ns);
        return give_withheld(client, now, err);
    }
    return 0;
}

/* -- what the server says
 * ----------------------------------------------------------------------------------------- */

static void accepted(struct client *client, uint64_t arrived, struct instant now)
{
    client->seated = client->ever_seated = true;
    client->join_sent = false;
    /* Not from now: ACCEPT may have taken long, or come twice. */
    client->send_at = instant_add(client->sent_at[client->numbers % NUMBERS_KEPT], interval(client));
    forget_reports(client, arrived);
    /* One that does not get out stays, and goes out after the next ACCEPT. */
    for (const struct pending_report *report = client->first; report; report = report->next)
        if (!send_report(client, report, now))
            break;
}

static int queue_event(struct client *client, const struct membership_event *event, struct muster_error *err)
{
    struct membership_event *place = event_queue_push(&client->queue);
    if (!place)
        return error_set(err, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                         EVENT_QUEUE_LIMIT);
    membership_event_copy(place, event);
    return 0;
}

/* A STOP of our own: the server knows nothing of it, and hears STOPPED. */
static int stop_held(struct client *client, struct muster_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int stop_held(struct client *client, struct muster_error *err, const char *format, ...)
{
    struct membership_event stop = {.kind = MEMBERSHIP_EVENT_STOP, .stopped = client->held};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(stop.reason, sizeof stop.reason, format, arguments);
    va_end(arguments);
    client->stopping = client->held;
    client->held_stops = true;
    client->in_time = false;
    return queue_event(client, &stop, err);
}

/* Gives the world out that is withheld, if nothing speaks against it any more. */
static int give_withheld(struct client *client, struct instant now, struct muster_error *err)
{
    bool leased = !client->lease_ns || now.ns < lease_limit(client).ns;
    /* What waited on its way, or here while this process stood still, may be over. */
    if (client->answered <= client->doubted && !MUTATED(MUTATION_LATE_WORLD))
        leased = false;
    if (!client->withheld || (client->held.epoch && !MUTATED(MUTATION_LATE_WORLD)) || !leased)
        return 0;
    client->withheld = false;
    client->held = client->world.world.id;
    client->held_stops = false;
    client->last_world = client->held;
    client->last_nodes = client->world.world.group_world_size;
    client->last_rank = client->world.world.group_rank;
    client->restart_count = client->world.world.restart_count;
    client->held_at = client->numbers;
    return queue_event(client, &client->world, err);
}

static bool is_old(const struct client *client, struct world_id id)
{
    return !MUTATED(MUTATION_OLD_ROUND) && id.epoch == client->newest.epoch &&
           id.round < client->newest.round;
}

/* The server may have lost this agent and got it back without the workers that it has meanwhile: a JOIN that
 * crossed the last WORLD on the way. */
static int on_world(struct client *client, const struct membership_event *event, struct instant now,
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
    if (client->held.epoch && !client->held_stops && !MUTATED(MUTATION_LATE_WORLD) &&
        stop_held(client, err, "the job goes on with round %u", id.round))
        return -1;
    /* Under a lease that is half over it could end before the next beat is answered. */
    struct instant renewal =
        client->lease_ns ? instant_add(client->lease_from, client->lease_ns / 2) : INSTANT_NEVER;
    if (instant_reached(now, renewal))
        client->doubted = client->numbers;
    if (give_withheld(client, now, err))
        return -1;
    struct instant next = instant_min(client->send_at, instant_add(now, beat_every_ns));
    client->send_at = client->withheld ? now : instant_min(next, renewal);
    return 0;
}

static int on_stop(struct client *client, const struct membership_event *event, struct instant now,
                   struct muster_error *err)
{
    if (client->held.epoch && world_id_equal(client->held, event->stopped)) {
        if (client->held_stops)
            return 0;
        client->stopping = event->stopped;
        client->held_stops = true;
        client->in_time = event->planned && event->grace_ns > 0;
        return queue_event(client, event, err);
    }
    if (world_id_equal(client->stopping, event->stopped) || is_old(client, event->stopped))
        return 0;
    /* A world that never reached this agent, or was withheld, has no workers here; its WORLD, if still to
     * come, is old now. What a former server's world had is over anyway. */
    if (event->stopped.epoch == client->epoch) {
        client->stopping = client->newest = event->stopped;
        client->withheld = false;
    }
    return client_report(client, event->stopped, MEMBERSHIP_REPORT_STOPPED, NULL, now, err);
}

static int handle_event(struct client *client, const struct membership_event *event, struct instant now,
                        struct muster_error *err)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        return on_world(client, event, now, err);
    case MEMBERSHIP_EVENT_STOP:
        return on_stop(client, event, now, err);
    default:
        client->over = true;
        client->withheld = false; /* it is not to be given out by the next answer */
        client->verdict_code = event->kind == MEMBERSHIP_EVENT_VERDICT ? event->exit_code : EXIT_CODE_FAILURE;
        return queue_event(client, event, err);
    }
}

/* A world that was withheld is the server's to give again, if it is still the one. */
static void forget_withheld(struct client *client)
{
    if (client->withheld)
        client->newest = client->newest_before;
    client->withheld = false;
}

/* It came when all had stopped, so there is nothing left to stop here. The server waits for our LEAVE as it
 * does after a verdict, and we register with whoever serves next. */
static void on_farewell(struct client *client, const struct wire_message *message, struct instant now)
{
    if (message->id.epoch != client->epoch)
        return; /* of a server that never had us: we go on asking */
    client->message.kind = WIRE_LEAVE;
    client->message.exit_code = EXIT_CODE_OK;
    (void)send_now(client);
    client->seated = false;
    client->join_sent = true;
    client->send_at = instant_add(now, interval(client));
    forget_withheld(client);
    client->left_epoch = client->epoch;
    if (world_id_equal(message->id, client->last_world)) /* a count goes with its round */
        client->restart_count = message->restart_count;
}

/* The server does not know this connection. */
static void unseat(struct client *client, struct instant now)
{
    client->seated = client->join_sent = false;
    client->send_at = now;
    forget_withheld(client);
}

int client_receive(struct client *client, const struct wire_message *message, struct instant now,
                   struct muster_error *err)
{
    if (instant_diff_ns(now, client->heard) > lost_after_ns / 2)
        client->doubted = client->numbers; /* what comes now was on its way for as long */
    client->heard = now;
    client->gone_at = INSTANT_NEVER;
    switch (message->kind) {
    case WIRE_ACCEPT:
        client->lease_ns = message->lease_ns;
        client->epoch = message->epoch;
        if (message->number > client->accepted && !MUTATED(MUTATION_LATE_WORLD))
            forget_withheld(client); /* it is given again after this */
        client->accepted = message->number > client->accepted ? message->number : client->accepted;
        renew_lease(client, message->number);
        accepted(client, message->sequence, now);
        if (client->held.epoch && message->number <= client->held_at && !MUTATED(MUTATION_LATE_WORLD))
            unseat(client, now); /* it joined without the workers that it has by now */
        return 0;
    case WIRE_AGAIN:
        unseat(client, now);
        return 0;
    case WIRE_FAREWELL:
        on_farewell(client, message, now);
        return 0;
    case WIRE_BEAT:
        memcpy(client->progress, message->progress, sizeof client->progress);
        if (message->server_done.epoch)
            client->server_done = message->server_done;
        renew_lease(client, message->number);
        forget_reports(client, message->sequence);
        return give_withheld(client, now, err);
    case WIRE_EVENT:
        return client->over ? 0 : handle_event(client, &message->event, now, err);
    default:
        return error_set(err, MUSTER_E_PROTOCOL, "%s sent what only an agent sends", client->options.server);
    }
}

bool client_has_room(const struct client *client)
{
    return client->queue.count < EVENT_QUEUE_LIMIT;
}

bool client_take_event(struct client *client, struct membership_event *event)
{
    return event_queue_pop(&client->queue, event);
}

/* -- time
 * ---------------------------------------------------------------------------------------------------------
 */

/* When the silence of the server becomes an error, if it lasts. Before a world there is nothing to lose: the
 * server may come back until the join timeout, and one that answers keeps that time itself and says who is
 * missing. */
static struct instant silence_limit(const struct client *client)
{
    struct instant lost = instant_add(client->heard, lost_after_ns);
    if (is_hopeless(client))
        return client->gone_at;
    if (client->held.epoch)
        return instant_add(client->heard, client->options.join_timeout_ns);
    if (client_server_left(client))
        return instant_add(client->heard, client->options.join_timeout_ns);
    return client->seated && lost.ns > client->join_limit.ns ? lost : client->join_limit;
}

static int check_silence(const struct client *client, struct instant now, struct muster_error *err)
{
    if (client->over || !instant_reached(now, silence_limit(client)))
        return 0;
    if (is_hopeless(client))
        return error_set(
            err, MUSTER_E_PEER,
            "the node that serves the job's world is lost: %s was not heard for %.4g s; restarts "
            "used: %lld of %lld",
            client->options.server, (double)instant_diff_ns(now, client->heard) / NS_PER_S,
            (long long)client->restart_count, (long long)client->options.max_restarts);
    if (client_server_left(client))
        return error_set(err, MUSTER_E_PEER,
                         "the node that serves the job's world left on SIGTERM: %s did not come back within "
                         "%.4g s (--join-timeout)",
                         client->options.server, (double)instant_diff_ns(now, client->heard) / NS_PER_S);
    bool had_world = client->last_world.epoch != 0;
    double waited =
        (double)(client->held.epoch ? instant_diff_ns(now, client->heard) : client->options.join_timeout_ns) /
        NS_PER_S;
    if (had_world)
        return error_set(err, MUSTER_E_PEER,
                         "the node that serves the job's world is lost: %s did not come back within %.4g s "
                         "(--join-timeout)",
                         client->options.server, waited);
    return error_set(
        err, MUSTER_E_TIMEOUT, "the server of the job's world at %s %s within %.4g s (--join-timeout)",
        client->options.server, client->ever_seated ? "did not come back" : "did not answer", waited);
}

static int check_lease(struct client *client, struct instant now, struct muster_error *err)
{
    if (client->over || !instant_reached(now, lease_end(client)))
        return 0;
    const char *why = client->lease_ns ? "the others may go on without this node"
                                       : "it is lost, and its workers with it; waiting until it comes back";
    return stop_held(client, err, "the server %s has not answered for %.4g s: %s", client->options.server,
                     (double)instant_diff_ns(now, client->heard) / NS_PER_S, why);
}

int client_turn(struct client *client, struct instant now, struct muster_error *err)
{
    if (client->left)
        return 0;
    if (check_lease(client, now, err))
        return -1;
    if (check_silence(client, now, err))
        return -1;
    bool due = instant_reached(now, client->send_at);
    if (due)
        client->send_at = instant_add(now, interval(client));
    if (client->seated && due)
        send_beat(client, now);
    /* A JOIN that found no connection goes out as soon as there is one. After the end there is nothing to
     * join for. */
    if (!client->seated && !client->over && (due || !client->join_sent))
        send_join(client, now);
    return 0;
}

void client_broken(struct client *client, struct instant now)
{
    client->gone_at = instant_min(client->gone_at, instant_add(now, reconnect_ns));
}

void client_reached(struct client *client)
{
    client->gone_at = INSTANT_NEVER;
}

void client_wake(struct client *client, struct instant now)
{
    if (!client->left && client_has_room(client))
        (void)check_lease(client, now, NULL); /* there is room for its event */
    if (instant_diff_ns(now, client->woken) > lost_after_ns / 2) {
        client->heard = now;
        client->doubted = client->numbers;
    }
    client->woken = now;
}

struct instant client_deadline(const struct client *client)
{
    if (client->queue.count)
        return (struct instant){0};
    if (client->left)
        return INSTANT_NEVER;
    /* After the verdict beats go on until the agent closes: the server waits for it. */
    if (client->over)
        return client->send_at;
    return instant_min(client->send_at, instant_min(lease_end(client), silence_limit(client)));
}

/* -- life
 * ---------------------------------------------------------------------------------------------------------
 */

void client_drain(struct client *client, int exit_code, int64_t grace_ns)
{
    client->message.kind = WIRE_DRAIN;
    client->message.exit_code = exit_code;
    client->message.grace_ns = grace_ns;
    if (client->seated)
        (void)send_now(client);
}

struct instant client_heard(const struct client *client)
{
    return client->heard;
}

bool client_is_alone(const struct client *client, struct instant now)
{
    return client->ever_seated && !client->left &&
           (instant_reached(now, client->gone_at) || client_silence_ns(client, now) > 0);
}

int64_t client_silence_ns(const struct client *client, struct instant now)
{
    int64_t silence = instant_diff_ns(now, client->heard);
    return silence > lost_after_ns ? silence : 0;
}

bool client_server_left(const struct client *client)
{
    return client->left_epoch && client->left_epoch == client->epoch;
}

bool client_has_news(const struct client *client)
{
    return client->first != NULL;
}

/* The end of a job whose restarts are used up is for all to hear: that server would be gone before they came.
 * The lost one's pod, started again, says it. */
bool client_may_succeed(const struct client *client, struct instant now)
{
    bool spent = client->last_world.epoch && client->restart_count >= client->options.max_restarts &&
                 !client_server_left(client);
    return !client->left && !client->over && !client->held.epoch && !spent &&
           client_silence_ns(client, now) > 0;
}

const char *client_progress(const struct client *client)
{
    return client->seated ? client->progress : "";
}

bool client_was_seated(const struct client *client)
{
    return client->ever_seated;
}

void client_leave(struct client *client, int exit_code)
{
    if (client->left)
        return;
    client->left = true;
    client->message.kind = WIRE_LEAVE;
    client->message.exit_code = exit_code;
    (void)send_now(client);
}

void client_finish(struct client *client)
{
    if (client->over)
        client_leave(client, client->verdict_code);
}

struct client *client_create(const struct client_options *options, struct instant now,
                             struct muster_error *err)
{
    struct client *client = mem_calloc(1, sizeof *client);
    if (!client) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a rendezvous client");
        return NULL;
    }
    client->options = *options;
    client->last = &client->first;
    client->gone_at = INSTANT_NEVER;
    client->send_at = client->heard = client->woken = now;
    client->join_limit = instant_add(now, options->join_timeout_ns - options->join_used_ns);
    return client;
}

void client_destroy(struct client *client)
{
    if (!client)
        return;
    forget_reports(client, UINT64_MAX);
    mem_free(client);
}
