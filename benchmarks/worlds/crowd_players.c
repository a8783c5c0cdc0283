/* crowd_players.c - a process that plays a part of the crowd's agents. See crowd.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "benchmarks/worlds/crowd.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/connection.h"
#include "rendezvous/zmq/zmq_calls.h"
#include "rendezvous/zmq/zmq_socket.h"

enum { EVENTS = 256, LATEST_LOOK_MS = 20, NAME_SIZE = 24 };

struct agent {
    int64_t connect_at;       /* ns after the start */
    struct zmq_socket socket; /* ours, bare */
    struct client *client;    /* ours */
    int fd;
    bool sent; /* bare: its message; ours: anything in this turn */
    bool done;
    struct world_id world; /* ours, once there is one */
    char name[NAME_SIZE];
};

struct play {
    const struct crowd *crowd;
    struct crowd_shared *shared;
    void *context;
    int epoll, done, connected;
    int first, agent_count; /* first is 1 for the first agent that does not serve */
    struct agent *agents;
    int64_t *due; /* ours, by agent */
    struct zmq_socket_options where;
    struct buffer frame;         /* scratch of a message that is sent */
    struct wire_message message; /* scratch of a received message */
};

static void must(int failed, const struct muster_error *err)
{
    errno = 0;
    if (failed)
        crowd_die(err->text);
}

static void note_done(struct play *play, struct agent *agent)
{
    if (!agent->done)
        atomic_fetch_add(&play->shared->done, 1);
    play->done += !agent->done;
    agent->done = true;
}

/* -- ours: what transport_client.c does for one member, for many in one loop
 * -------------------------------------------------- */

static struct play *playing; /* for the send of every member */

static bool member_send(void *context, const struct wire_message *message)
{
    struct agent *agent = context;
    struct muster_error err;
    buffer_clear(&playing->frame);
    must(wire_encode(message, &playing->frame, &err), &err);
    bool sent = zmq_socket_send(&agent->socket, NULL, 0, playing->frame.data, playing->frame.length) == 0;
    agent->sent |= sent;
    if (sent)
        atomic_fetch_add(&playing->shared->messages, 1);
    if (sent && message->kind == WIRE_JOIN)
        atomic_fetch_add(&playing->shared->joins, 1);
    return sent;
}

static void take_events(struct play *play, struct agent *agent)
{
    static struct membership_event event;
    while (client_take_event(agent->client, &event)) {
        errno = 0;
        if (event.kind != MEMBERSHIP_EVENT_WORLD)
            crowd_die(event.reason);
        agent->world = event.world.id;
        note_done(play, agent);
    }
}

static void receive_all(struct play *play, struct agent *agent, struct instant now)
{
    struct muster_error err;
    zmq_msg_t body;
    zmq_msg_init(&body);
    while (zmq_msg_recv(&body, agent->socket.socket, ZMQ_DONTWAIT) >= 0) {
        must(wire_decode(zmq_msg_data(&body), zmq_msg_size(&body), &play->message, &err), &err);
        must(client_receive(agent->client, &play->message, now, &err), &err);
        atomic_fetch_add(&play->shared->messages, 1);
        take_events(play, agent);
    }
    zmq_msg_close(&body);
}

/* A send may eat the edge of the descriptor. */
static void member_turn(struct play *play, int i, bool edge, struct instant now)
{
    struct agent *agent = &play->agents[i];
    struct muster_error err;
    client_wake(agent->client, now);
    if (edge)
        receive_all(play, agent, now);
    agent->sent = false;
    must(client_turn(agent->client, now, &err), &err);
    if (agent->sent)
        receive_all(play, agent, now);
    play->due[i] = client_deadline(agent->client).ns;
}

/* The report of an agent that has started its workers. */
static void report_all(struct play *play)
{
    struct instant now = clock_now(NULL);
    struct muster_error err;
    for (int i = 0; i < play->agent_count; i++) {
        struct agent *agent = &play->agents[i];
        must(client_report(agent->client, agent->world, MEMBERSHIP_REPORT_RUNNING, NULL, now, &err), &err);
        play->due[i] = 0;
    }
}

static void make_member(struct play *play, int i)
{
    struct agent *agent = &play->agents[i];
    struct muster_error err;
    const int rank = play->first + i;
    (void)snprintf(agent->name, sizeof agent->name, "agent-%d", rank);
    struct client_options options = {
        .join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                 .job_id = "crowd",
                 .min_nodes = play->crowd->agents,
                 .max_nodes = play->crowd->agents,
                 .elastic = play->crowd->elastic,
                 .agent_name = agent->name,
                 .node_rank = play->crowd->elastic ? -1 : rank,
                 .incarnation = {1, (uint64_t)rank},
                 .local_world_size = 8,
                 .role = "default",
                 .store_addr = "127.0.0.1",
                 .store_port = 29501},
        .join_timeout_ns = 600 * NS_PER_S,
        .server = "127.0.0.1",
        .send = member_send,
        .context = agent,
    };
    agent->client = client_create(&options, clock_now(NULL), &err);
    must(!agent->client, &err);
}

/* -- bare and tcp
 * ------------------------------------------------------------------------------------------------- */

static void bare_turn(struct play *play, struct agent *agent)
{
    char body[CROWD_MESSAGE] = {0};
    if (!agent->sent)
        agent->sent = zmq_send(agent->socket.socket, body, sizeof body, ZMQ_DONTWAIT) >= 0;
    if (zmq_recv(agent->socket.socket, body, sizeof body, ZMQ_DONTWAIT) >= 0)
        note_done(play, agent);
}

static void make_bare(struct play *play, struct agent *agent)
{
    agent->socket.socket = zmq_socket(play->context, ZMQ_DEALER);
    if (!agent->socket.socket)
        crowd_die("cannot make a DEALER");
    crowd_bare_options(agent->socket.socket, play->crowd, false);
}

static void tcp_turn(struct play *play, struct agent *agent)
{
    char bytes[CROWD_MESSAGE];
    if (read(agent->fd, bytes, sizeof bytes) != sizeof bytes)
        crowd_die("an echo is cut");
    note_done(play, agent);
}

static void tcp_connect(struct play *play, struct agent *agent)
{
    const char bytes[CROWD_MESSAGE] = {0};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(play->crowd->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    agent->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (agent->fd < 0 || connect(agent->fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        write(agent->fd, bytes, sizeof bytes) != sizeof bytes)
        crowd_die("cannot connect");
}

/* -- all
 * --------------------------------------------------------------------------------------------------------------
 */

static void watch(struct play *play, int i)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    if (play->crowd->kind != CROWD_TCP)
        event.events |= EPOLLET;
    if (epoll_ctl(play->epoll, EPOLL_CTL_ADD, play->agents[i].fd, &event) < 0)
        crowd_die("cannot watch a descriptor");
}

static void connect_one(struct play *play, int i)
{
    struct agent *agent = &play->agents[i];
    struct muster_error err;
    char where[64];
    switch (play->crowd->kind) {
    case CROWD_OURS:
        must(zmq_socket_connect_dealer(&agent->socket, &play->where, &err), &err);
        play->due[i] = 0;
        break;
    case CROWD_BARE:
        make_bare(play, agent);
        (void)snprintf(where, sizeof where, "tcp://127.0.0.1:%u", play->crowd->port);
        if (zmq_connect(agent->socket.socket, where))
            crowd_die(where);
        break;
    case CROWD_TCP:
        tcp_connect(play, agent);
        break;
    }
    if (play->crowd->kind != CROWD_TCP)
        agent->fd = zmq_socket_fd(&agent->socket);
    watch(play, i);
}

static void turn(struct play *play, int i, struct instant now)
{
    if (play->crowd->kind == CROWD_OURS)
        member_turn(play, i, true, now);
    else if (play->crowd->kind == CROWD_BARE)
        bare_turn(play, &play->agents[i]);
    else
        tcp_turn(play, &play->agents[i]);
}

static int by_time(const void *a, const void *b)
{
    const struct agent *one = a, *other = b;
    return (one->connect_at > other->connect_at) - (one->connect_at < other->connect_at);
}

/* Returns how long to wait at most. */
static int connect_due(struct play *play, struct instant start)
{
    while (play->connected < play->agent_count) {
        int64_t left = play->agents[play->connected].connect_at - instant_diff_ns(clock_now(NULL), start);
        if (left > 0)
            return left < LATEST_LOOK_MS * NS_PER_MS ? (int)(left / NS_PER_MS) : LATEST_LOOK_MS;
        connect_one(play, play->connected++);
    }
    return LATEST_LOOK_MS;
}

static void loop_once(struct play *play, struct instant start)
{
    struct epoll_event events[EVENTS];
    int wait_ms = connect_due(play, start);
    int count = epoll_wait(play->epoll, events, EVENTS, wait_ms);
    struct instant now = clock_now(NULL);
    for (int i = 0; i < count; i++)
        turn(play, (int)events[i].data.u32, now);
    for (int i = 0; play->crowd->kind == CROWD_OURS && i < play->connected; i++)
        if (play->due[i] <= now.ns)
            member_turn(play, i, false, now);
}

/* As transport_client.c does: the first attempts of a large job are spread. */
static void spread(struct play *play)
{
    for (int i = 0; i < play->agent_count; i++)
        play->agents[i].connect_at =
            play->crowd->kind == CROWD_OURS
                ? connection_first_delay_ns(play->crowd->agents,
                                            (uint64_t)(play->first + i) * UINT64_C(0x9e3779b97f4a7c15))
                : 0;
    qsort(play->agents, (size_t)play->agent_count, sizeof *play->agents, by_time);
}

static void prepare(struct play *play)
{
    const struct crowd *crowd = play->crowd;
    struct muster_error err;
    playing = play;
    must(zmq_calls_load(&err), &err);
    play->epoll = epoll_create1(EPOLL_CLOEXEC);
    play->context = zmq_ctx_new();
    play->agents = mem_calloc((size_t)play->agent_count, sizeof *play->agents);
    play->due = mem_calloc((size_t)play->agent_count, sizeof *play->due);
    if (play->epoll < 0 || !play->context ||
        zmq_ctx_set(play->context, ZMQ_MAX_SOCKETS, crowd->agents + 64) || !play->agents || !play->due)
        crowd_die("cannot prepare");
    play->where = (struct zmq_socket_options){
        .host = "127.0.0.1",
        .first_interval_ms = connection_first_interval_ms(&(struct connection){0}),
        .longest_interval_ms = connection_longest_interval_ms(crowd->agents),
        .port = crowd->port,
        .keys = crowd->keyed ? &crowd->keys : NULL,
        .nodes = crowd->agents,
        .context = play->context};
    spread(play);
    for (int i = 0; crowd->kind == CROWD_OURS && i < play->agent_count; i++)
        make_member(play, i);
}

static void wait_for(struct play *play, enum crowd_phase phase)
{
    while (atomic_load(&play->shared->phase) < (int)phase)
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
}

void crowd_play(const struct crowd *crowd, struct crowd_shared *shared, int first, int count)
{
    static struct play play;
    pid_t pid = fork();
    if (pid < 0)
        crowd_die("fork");
    if (pid > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    play = (struct play){.crowd = crowd, .shared = shared, .first = first, .agent_count = count};
    prepare(&play);
    atomic_fetch_add(&shared->ready, 1);
    wait_for(&play, CROWD_FORMS);
    struct instant start = clock_now(NULL);
    struct crowd_usage before = crowd_usage_now();
    while (play.done < count)
        loop_once(&play, start);
    atomic_fetch_add(&shared->cpu_ns, crowd_usage_now().cpu_ns - before.cpu_ns);
    atomic_fetch_add(&shared->formed, 1);
    while (atomic_load(&shared->phase) < CROWD_HELD)
        loop_once(&play, start);
    if (crowd->kind == CROWD_OURS)
        report_all(&play);
    for (;;) /* until the coordinator ends */
        loop_once(&play, start);
}
