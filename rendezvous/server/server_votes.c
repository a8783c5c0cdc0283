/* server_votes.c - the thread of an agent that takes part in votes: it hands votes, and the JOINs of agents
 * that have to learn the server first, to the agent; it takes a roster and gives it up. See server.h. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/server/server_internal.h"

/* Frames that may wait for the agent; more are dropped, and repeated by their senders. */
enum { FRAMES_LIMIT = 1024 };

/* --- the thread --- */

static void keep_frame(struct transport *c, const struct sender *peer, const void *data, size_t size)
{
    struct server_frame *frame = mem_calloc(1, sizeof *frame + size);
    if (!frame)
        return; /* it is repeated */
    frame->id_size = peer->id_size;
    memcpy(frame->id, peer->id, peer->id_size);
    (void)snprintf(frame->address, sizeof frame->address, "%s", admission_address(&c->admission, peer->fd));
    frame->size = size;
    memcpy(frame->data, data, size);
    pthread_mutex_lock(&c->lock);
    const bool room = c->frame_count < FRAMES_LIMIT;
    if (room) {
        *c->last_frame = frame;
        c->last_frame = &frame->next;
        c->frame_count++;
    }
    pthread_mutex_unlock(&c->lock);
    if (room)
        server_signal_fd(c->ready_fd);
    else
        mem_free(frame);
}

/* An agent with a newer record, or with that of another job, cannot be a member yet. */
static bool knows_more(const struct transport *c, const struct world_record *record)
{
    const struct world_record *known = &c->office.known;
    return record && (!known->epoch || record->epoch != known->epoch || record_compare(record, known) > 0);
}

/* Without a roster: an agent that cannot be of this job is told so. */
static bool refuse_join(struct transport *c, const struct sender *peer)
{
    const struct roster_join *join = &c->message.join;
    char why[MUSTER_ERROR_TEXT];
    if (join->protocol_version != ROSTER_PROTOCOL_VERSION)
        (void)snprintf(why, sizeof why,
                       "protocol version: this agent has %d, the job %d; run the same muster on all nodes",
                       join->protocol_version, ROSTER_PROTOCOL_VERSION);
    else if (strcmp(join->job_id, c->options->job_id) != 0)
        (void)snprintf(why, sizeof why, "job id: this agent has \"%.128s\", the agent here \"%.128s\"",
                       join->job_id, c->options->job_id);
    else
        return false;
    c->message.kind = WIRE_EVENT;
    membership_event_clear(&c->message.event);
    c->message.event.kind = MEMBERSHIP_EVENT_REFUSED;
    memcpy(c->message.event.reason, why, sizeof why);
    (void)server_send(c, peer->id, peer->id_size);
    return true;
}

bool server_takes_for_agent(struct transport *c, const struct sender *peer, const void *data, size_t size)
{
    struct wire_message *message = &c->message;
    if (message->kind == WIRE_VOTE) {
        keep_frame(c, peer, data, size);
        return true;
    }
    if (message->kind == WIRE_JOIN && message->join.vote_port && !message->texts.vote_addr[0])
        (void)snprintf(message->texts.vote_addr, sizeof message->texts.vote_addr, "%s",
                       admission_address(&c->admission, peer->fd));
    if (message->kind == WIRE_JOIN && (!c->roster || knows_more(c, message->record))) {
        const bool fits = message->join.protocol_version == ROSTER_PROTOCOL_VERSION &&
                          strcmp(message->join.job_id, c->options->job_id) == 0;
        if (c->roster && !fits)
            return false; /* the roster refuses it */
        if (!refuse_join(c, peer))
            keep_frame(c, peer, data, size);
        return true;
    }
    if (c->roster)
        return false;
    if (message->kind == WIRE_BEAT || message->kind == WIRE_REPORT) {
        message->proof = 0;
        message->kind = WIRE_AGAIN; /* its next JOIN is answered with the agent that serves */
        (void)server_send(c, peer->id, peer->id_size);
    }
    return true;
}

void server_note_voter(struct transport *c, int slot)
{
    const struct agent_incarnation agent = roster_incarnation(c->roster, slot);
    if (record_find_voter(&c->office.known, agent) < 0)
        return;
    pthread_mutex_lock(&c->lock);
    int i = 0;
    while (i < c->heard_count && !agent_incarnation_equal(c->heard[i], agent))
        i++;
    if (i == c->heard_count && i < RECORD_VOTERS)
        c->heard[c->heard_count++] = agent;
    pthread_mutex_unlock(&c->lock);
}

void server_keep_proposal(struct transport *c, bool revises)
{
    pthread_mutex_lock(&c->lock);
    roster_fill_record(c->roster, &c->proposal);
    c->proposed = !c->deaf; /* the office may have ended before this thread knows it */
    c->revises = revises;
    pthread_mutex_unlock(&c->lock);
    server_signal_fd(c->ready_fd);
}

void server_tend_voters(struct transport *c)
{
    struct world_record record;
    if (!c->roster || c->revision_asked || !roster_revise_record(c->roster, &c->office.known, &record))
        return;
    c->revision_asked = true;
    server_keep_proposal(c, true);
}

void server_end_office(struct transport *c)
{
    roster_destroy(c->roster);
    c->roster = NULL;
    c->office = (struct server_office){0};
    c->broken = false;
    pthread_mutex_lock(&c->lock);
    c->progress[0] = '\0';
    pthread_mutex_unlock(&c->lock);
    for (int slot = 0; slot < c->routes.slot_count; slot++)
        routes_remove(&c->routes, slot, c->routes.slots[slot].session);
}

static void begin_office(struct transport *c, struct command *command)
{
    struct sender local = {.session = SERVER_LOCAL_SESSION};
    server_end_office(c);
    c->roster = command->roster;
    command->roster = NULL;
    c->office = *command->office;
    c->elected = c->office.known.epoch != 0;
    c->announced = (struct world_id){0};
    c->local_member = -1;
    c->logged_state = roster_state(c->roster);
    c->revision_asked = false;
    pthread_mutex_lock(&c->lock);
    c->deaf = c->proposed = false;
    c->heard_count = 0;
    pthread_mutex_unlock(&c->lock);
    command->event =
        (struct roster_event){.kind = ROSTER_JOIN, .session = SERVER_LOCAL_SESSION, .join = &command->join};
    (void)server_step(c, &command->event, &local);
}

/* A voter without a rank: it gets no WORLD. */
static bool is_spare_voter(const struct world_record *record, struct agent_incarnation agent)
{
    return record_find_voter(record, agent) >= record->nodes;
}

/* The record for all members and spares, or for spares that are voters alone. One that does not know that it
 * is a voter has no door, and no vote. */
static void tell_members(struct transport *c, bool spares_alone)
{
    struct takeover_message told = {.kind = TAKEOVER_MOVED,
                                    .from = &c->office.self,
                                    .known = &c->office.known,
                                    .ballot = c->office.ballot,
                                    .server = &c->office.self};
    for (int slot = 0; slot < c->routes.slot_count; slot++) {
        const struct route *route = &c->routes.slots[slot];
        if (!route->session ||
            (spares_alone && !is_spare_voter(told.known, roster_incarnation(c->roster, slot))))
            continue;
        c->message.kind = WIRE_VOTE;
        c->message.vote.job_id = c->options->job_id;
        c->message.vote.to = roster_incarnation(c->roster, slot);
        c->message.vote.message = told;
        (void)server_send(c, route->id, route->id_size); /* a lost one is followed by the next world's */
    }
}

static void chosen(struct transport *c, const struct world_record *record)
{
    struct sender local = {.session = SERVER_LOCAL_SESSION};
    const struct roster_event event = {.kind = ROSTER_CHOSEN, .session = SERVER_LOCAL_SESSION};
    c->office.known = *record;
    c->revision_asked = false;
    if (!record->revision) {
        (void)server_step(c, &event, &local);
    }
    if (c->roster)
        tell_members(c, !record->revision);
}

void server_obey(struct transport *c, struct command *command)
{
    switch (command->kind) {
    case COMMAND_SERVE:
        begin_office(c, command);
        break;
    case COMMAND_CEASE:
        server_end_office(c);
        break;
    case COMMAND_CHOSEN:
        if (c->roster)
            chosen(c, &command->office->known);
        break;
    case COMMAND_ANSWER:
        (void)zmq_socket_send(&c->socket, command->frame->id, command->frame->id_size, command->frame->data,
                              command->frame->size); /* its sender asks again */
        break;
    case COMMAND_EVENT:
        break;
    }
}

void server_free_command(struct command *command)
{
    roster_destroy(command->roster);
    mem_free(command->office);
    mem_free(command->frame);
    mem_free(command);
}

/* --- the agent --- */

static struct command *office_command(enum command_kind kind, struct muster_error *err)
{
    struct command *command = server_new_command(kind, err);
    if (command)
        command->office = mem_calloc(1, sizeof *command->office);
    if (command && command->office)
        return command;
    if (command)
        server_free_command(command);
    error_set(err, MUSTER_E_NOMEM, "no memory to serve the job");
    return NULL;
}

int server_serve(struct membership *m, struct roster *roster, const struct roster_join *past,
                 const struct server_office *office, struct muster_error *err)
{
    struct command *command = office_command(COMMAND_SERVE, err);
    if (!command) {
        roster_destroy(roster);
        return -1;
    }
    command->roster = roster;
    command->join = *past;
    *command->office = *office;
    server_post(m->transport, command);
    return 0;
}

int server_cease(struct membership *m, struct muster_error *err)
{
    struct transport *c = m->transport;
    struct command *command = server_new_command(COMMAND_CEASE, err);
    if (!command)
        return -1;
    pthread_mutex_lock(&c->lock);
    c->deaf = true;
    c->proposed = false;
    c->queue.first = c->queue.count = 0;
    pthread_mutex_unlock(&c->lock);
    server_post(c, command);
    return 0;
}

int server_chosen(struct membership *m, const struct world_record *record, struct muster_error *err)
{
    struct command *command = office_command(COMMAND_CHOSEN, err);
    if (!command)
        return -1;
    command->office->known = *record;
    server_post(m->transport, command);
    return 0;
}

bool server_take_proposal(struct membership *m, struct world_record *out, bool *revises)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    const bool got = c->proposed;
    c->proposed = false;
    if (got) {
        *out = c->proposal;
        *revises = c->revises;
    }
    pthread_mutex_unlock(&c->lock);
    return got;
}

struct server_frame *server_take_frame(struct membership *m)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    struct server_frame *frame = c->frames;
    if (frame) {
        c->frames = frame->next;
        c->frame_count--;
        if (!c->frames)
            c->last_frame = &c->frames;
    }
    server_settle_ready(c);
    pthread_mutex_unlock(&c->lock);
    return frame;
}

int server_answer(struct membership *m, const struct server_frame *frame, const struct wire_message *message,
                  struct muster_error *err)
{
    scope_buffer bytes = {0};
    if (wire_encode(message, &bytes, err))
        return -1;
    struct command *command = server_new_command(COMMAND_ANSWER, err);
    if (!command)
        return -1;
    command->frame = mem_calloc(1, sizeof *command->frame + bytes.length);
    if (!command->frame) {
        server_free_command(command);
        return error_set(err, MUSTER_E_NOMEM, "no memory for an answer to a vote");
    }
    *command->frame = (struct server_frame){.id_size = frame->id_size, .size = bytes.length};
    memcpy(command->frame->id, frame->id, frame->id_size);
    memcpy(command->frame->data, bytes.data, bytes.length);
    server_post(m->transport, command);
    return 0;
}

bool server_take_heard(struct membership *m, struct agent_incarnation *out)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    const bool got = c->heard_count > 0;
    if (got)
        *out = c->heard[--c->heard_count];
    pthread_mutex_unlock(&c->lock);
    return got;
}
