/* crowd.c - a world of N agents forms over real sockets on the loopback: one process serves, this one plays
 * all other agents. Prints one line of numbers for rendezvous.py.
 *
 *     crowd ours|bare|tcp AGENTS [--secret] [--elastic] [--hold SECONDS]
 *
 * "wall_ns N server_cpu_ns N agents_cpu_ns N server_kb N hold_cpu_ns N": from the first connect to the last
 * WORLD (ours) or echo (bare, tcp); the processor time of both sides in between; the server's resident memory
 * then; the server's processor time while the world was held. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "benchmarks/crowd.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/connection.h"
#include "rendezvous/zmq/zmq_calls.h"
#include "rendezvous/zmq/zmq_socket.h"

enum { EVENTS = 256, LATEST_LOOK_MS = 20, PATIENCE_S = 300, NAME_SIZE = 24 };

struct agent {
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
    void *context;
    int epoll, done;
    int agent_count;
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
    (void)snprintf(agent->name, sizeof agent->name, "agent-%d", i + 1);
    struct client_options options = {
        .join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                 .job_id = "crowd",
                 .min_nodes = play->crowd->agents,
                 .max_nodes = play->crowd->agents,
                 .elastic = play->crowd->elastic,
                 .agent_name = agent->name,
                 .node_rank = play->crowd->elastic ? -1 : i + 1,
                 .incarnation = {1, (uint64_t)i + 1},
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

static void loop_once(struct play *play)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(play->epoll, events, EVENTS, LATEST_LOOK_MS);
    struct instant now = clock_now(NULL);
    for (int i = 0; i < count; i++)
        turn(play, (int)events[i].data.u32, now);
    for (int i = 0; play->crowd->kind == CROWD_OURS && i < play->agent_count; i++)
        if (play->due[i] <= now.ns)
            member_turn(play, i, false, now);
}

static void loop_until(struct play *play, struct instant limit, bool all_done)
{
    while (!instant_reached(clock_now(NULL), limit) && !(all_done && play->done == play->agent_count))
        loop_once(play);
    errno = 0;
    if (all_done && play->done < play->agent_count) {
        (void)fprintf(stderr, "crowd: %d of %d have received it\n", play->done, play->agent_count);
        crowd_die("not all agents have received it in time");
    }
}

static void prepare(struct play *play, const struct crowd *crowd)
{
    struct muster_error err;
    *play = (struct play){.crowd = crowd, .agent_count = crowd->agents - 1};
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
    for (int i = 0; crowd->kind == CROWD_OURS && i < play->agent_count; i++)
        make_member(play, i);
}

static struct crowd_usage ask(int control)
{
    struct crowd_usage usage;
    if (write(control, "u", 1) != 1 || read(control, &usage, sizeof usage) != sizeof usage)
        crowd_die("the server has ended");
    return usage;
}

static void run(const struct crowd *crowd)
{
    static struct play play;
    int control;
    crowd_serve(crowd, &control);
    prepare(&play, crowd);
    struct crowd_usage server = ask(control), agents = crowd_usage_now();
    struct instant start = clock_now(NULL);
    for (int i = 0; i < play.agent_count; i++)
        connect_one(&play, i);
    loop_until(&play, instant_add(start, PATIENCE_S * NS_PER_S), true);
    int64_t wall = instant_diff_ns(clock_now(NULL), start);
    struct crowd_usage server_then = ask(control), agents_then = crowd_usage_now();
    if (crowd->kind == CROWD_OURS)
        report_all(&play);
    loop_until(&play, instant_add(clock_now(NULL), crowd->hold_s * NS_PER_S), false);
    struct crowd_usage server_last = ask(control);
    (void)printf("wall_ns %lld server_cpu_ns %lld agents_cpu_ns %lld server_kb %lld hold_cpu_ns %lld\n",
                 (long long)wall, (long long)(server_then.cpu_ns - server.cpu_ns),
                 (long long)(agents_then.cpu_ns - agents.cpu_ns), (long long)server_then.resident_kb,
                 (long long)(server_last.cpu_ns - server_then.cpu_ns));
    (void)fflush(stdout);
    _exit(0); /* thousands of sockets are not closed one by one */
}

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        crowd_die("cannot find a free port");
    (void)close(fd);
    return ntohs(address.sin_port);
}

static void make_keys(struct crowd *crowd)
{
    struct job_secret secret;
    struct muster_error err;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        crowd_die("getrandom");
    must(secret_derive(&secret, "crowd", &crowd->keys, &err), &err);
}

static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        crowd_die("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        crowd_die("setrlimit");
}

static int usage(void)
{
    (void)fprintf(stderr, "usage: crowd ours|bare|tcp AGENTS [--secret] [--elastic] [--hold SECONDS]\n");
    return 2;
}

int main(int argc, char *argv[])
{
    static const char *const kinds[] = {[CROWD_OURS] = "ours", [CROWD_BARE] = "bare", [CROWD_TCP] = "tcp"};
    static struct crowd crowd;
    int64_t number;
    int kind = 0;
    while (argc >= 3 && kind < 3 && strcmp(argv[1], kinds[kind]) != 0)
        kind++;
    if (argc < 3 || kind == 3 || !text_int64(argv[2], &number) || number < 2 || number > ROSTER_MEMBER_LIMIT)
        return usage();
    crowd.kind = (enum crowd_kind)kind;
    crowd.agents = (int)number;
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--secret"))
            crowd.keyed = true;
        else if (!strcmp(argv[i], "--elastic"))
            crowd.elastic = true;
        else if (!strcmp(argv[i], "--hold") && i + 1 < argc && text_int64(argv[i + 1], &number) &&
                 number >= 0 && number <= 3600)
            crowd.hold_s = (int)number, i++;
        else
            return usage();
    }
    raise_descriptors();
    if (crowd.keyed)
        make_keys(&crowd);
    crowd.port = free_port();
    run(&crowd);
}
