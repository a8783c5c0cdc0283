/* admission.c - see admission.h. */
#include "rendezvous/server/admission.h"

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/mem.h"
#include "rendezvous/security/zap.h"
#include "rendezvous/zmq/handshake.h"
#include "rendezvous/zmq/zmq_calls.h"

enum {
    ANSWERS_A_TURN = 1000,
    OPEN_BASE = 1024, /* unauthenticated connections that are tolerated, beside the job's own connections */
    OPEN_PER_SLOT = 4,
    OPEN_SPARE = 64,  /* beside the job's own connections, if descriptors are few */
    KEPT_FREE = 128,  /* descriptors, for workers, logs and the store */
    MAY_SPEAK = 16,   /* idle connections that are kept in any case: each new connection is one at first */
    PASSED_OVER = 32, /* at most, before one is closed */
    NONE = -1,
    DOORS_LIMIT = 65536, /* events of connections with higher descriptors are not logged */
    FIRST_DOORS = 64,
};

/* An idle unauthenticated connection costs some 30 KB until its time is up: twice the admitted ones is
 * enough. Descriptors of connections are missing to the agent, which has workers to start. */
static unsigned full_at(unsigned open_limit, unsigned slots, uint64_t descriptors)
{
    uint64_t most = descriptors / 2;
    if (most < slots + OPEN_SPARE)
        most = slots + OPEN_SPARE;
    if (most + KEPT_FREE > descriptors)
        most = descriptors > 2 * KEPT_FREE ? descriptors - KEPT_FREE : descriptors / 2;
    return most < 2 * (uint64_t)open_limit ? (unsigned)most : 2 * open_limit;
}

void admission_init(struct admission *gate, const unsigned char *client_public, int slots,
                    uint64_t descriptors, const struct log_sink *log)
{
    *gate = (struct admission){
        .client_public = client_public,
        .log = log,
        .open_limit = OPEN_BASE + OPEN_PER_SLOT * (unsigned)slots,
        .newest = NONE,
        .oldest = NONE,
        .pending = -1,
    };
    gate->full_at = full_at(gate->open_limit, (unsigned)slots, descriptors);
    if (gate->open_limit > gate->full_at)
        gate->open_limit = gate->full_at;
    if (gate->full_at < (unsigned)slots)
        log_warning(log,
                    "this process may have %" PRIu64 " descriptors (ulimit -n), enough for connections of %u "
                    "nodes: the job is for up to %d",
                    descriptors, gate->full_at, slots);
}

static void refuse(struct admission *gate, enum refusal reason, const char *address, struct instant now)
{
    char line[REFUSAL_LINE_SIZE];
    if (rejection_log_note(&gate->refusals, reason, address, now, line))
        log_warning(gate->log, "%s", line);
}

/* --- connections --- */

/* NULL if there is no room to record it. */
static struct admission_slot *door_of(struct admission *gate, int fd)
{
    if (fd < 0 || fd >= DOORS_LIMIT)
        return NULL;
    if ((size_t)fd < gate->door_count)
        return &gate->doors[fd];
    size_t count = gate->door_count ? gate->door_count : FIRST_DOORS;
    while (count <= (size_t)fd)
        count *= 2;
    struct admission_slot *doors = mem_realloc(gate->doors, count, sizeof *doors);
    if (!doors)
        return NULL;
    memset(doors + gate->door_count, 0, (count - gate->door_count) * sizeof *doors);
    gate->doors = doors;
    gate->door_count = count;
    return &doors[fd];
}

/* The peer's port; 0 if unknown. */
static uint16_t read_address(int fd, char out[REFUSAL_ADDRESS_SIZE])
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } peer = {0};
    socklen_t size = sizeof peer;
    out[0] = '\0';
    if (getpeername(fd, &peer.any, &size) < 0)
        return 0;
    const void *bytes = peer.any.sa_family == AF_INET6 ? (const void *)&peer.six.sin6_addr
                                                       : (const void *)&peer.four.sin_addr;
    if (!inet_ntop(peer.any.sa_family, bytes, out, REFUSAL_ADDRESS_SIZE))
        out[0] = '\0';
    return ntohs(peer.any.sa_family == AF_INET6 ? peer.six.sin6_port : peer.four.sin_port);
}

/* The idle ones are a chain through their slots. */
static void link_silent(struct admission *gate, int fd)
{
    struct admission_slot *door = &gate->doors[fd];
    door->newer = NONE;
    door->older = gate->newest;
    *(gate->newest == NONE ? &gate->oldest : &gate->doors[gate->newest].newer) = fd;
    gate->newest = fd;
    gate->silent++;
}

static void unlink_silent(struct admission *gate, int fd)
{
    const struct admission_slot *door = &gate->doors[fd];
    *(door->newer == NONE ? &gate->newest : &gate->doors[door->newer].older) = door->older;
    *(door->older == NONE ? &gate->oldest : &gate->doors[door->older].newer) = door->newer;
    gate->silent--;
}

/* Whether anything was received on the connection: a greeting in progress. */
static bool has_sent(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_bytes_received;
}

/* Those that greet get another turn: with thousands of unauthenticated connections an agent would hardly
 * get to its JOIN. */
static int choose_oldest(struct admission *gate)
{
    for (int i = 0; i < PASSED_OVER && has_sent(gate->oldest); i++) {
        int fd = gate->oldest;
        unlink_silent(gate, fd);
        link_silent(gate, fd);
    }
    return gate->oldest;
}

/* Its descriptor is libzmq's, which closes it at the end that it sees, and reports that before: a number
 * that belongs to another connection by now has another peer. */
static void evict_oldest(struct admission *gate)
{
    char address[REFUSAL_ADDRESS_SIZE];
    int fd = choose_oldest(gate);
    struct admission_slot *door = &gate->doors[fd];
    unlink_silent(gate, fd);
    door->evicted = true;
    gate->evicted++;
    if (read_address(fd, address) == door->port && !strcmp(address, door->address))
        (void)shutdown(fd, SHUT_RDWR); /* it may have gone */
}

static void forget(struct admission *gate, int fd)
{
    struct admission_slot *door = &gate->doors[fd];
    if (!door->heard && !door->evicted)
        unlink_silent(gate, fd);
    gate->evicted -= door->evicted;
    gate->open--;
    door->open = false;
}

static void accepted(struct admission *gate, int fd)
{
    struct admission_slot *door = door_of(gate, fd);
    if (!door)
        return;
    if (door->open)
        forget(gate, fd); /* its end was not reported */
    gate->open++;
    *door = (struct admission_slot){.open = true};
    door->port = read_address(fd, door->address);
    link_silent(gate, fd);
    while (gate->open - gate->evicted > gate->full_at && gate->silent > MAY_SPEAK)
        evict_oldest(gate);
}

/* The reason of a failed greeting comes right before the end of its connection. One rejected by ZAP is
 * counted already. */
static void closed(struct admission *gate, int fd, struct instant now)
{
    struct admission_slot *door = door_of(gate, fd);
    bool known = door && door->open;
    int reason = gate->pending;
    gate->pending = -1;
    if (known)
        forget(gate, fd);
    if (known && door->heard)
        return;
    if (known && door->evicted)
        refuse(gate, REFUSAL_PLACE, door->address, now);
    else if (reason < 0 && gate->denied)
        gate->denied--;
    else
        refuse(gate, reason < 0 ? REFUSAL_STRANGER : (enum refusal)reason, known ? door->address : "", now);
}

static int reason_of(const struct admission *gate, enum handshake_fault fault)
{
    switch (fault) {
    case HANDSHAKE_MISMATCH:
        return gate->client_public ? REFUSAL_NO_SECRET : REFUSAL_SECRET_UNWANTED;
    case HANDSHAKE_CRYPTO:
        return REFUSAL_OTHER_SECRET;
    case HANDSHAKE_STRANGE:
        return REFUSAL_STRANGER;
    case HANDSHAKE_BROKEN:
        return REFUSAL_SILENT;
    default: /* set by admission_answer */
        return -1;
    }
}

void admission_watch(struct admission *gate, int event, int value, struct instant now)
{
    enum handshake_fault fault = handshake_fault(event, value);
    if (fault != HANDSHAKE_FINE)
        gate->pending = reason_of(gate, fault);
    else if (event == ZMQ_EVENT_ACCEPTED)
        accepted(gate, value);
    else if (event == ZMQ_EVENT_DISCONNECTED)
        closed(gate, value, now);
    /* each open connection is one of three: idle, closed by us, or active */
    assert(gate->silent + gate->evicted <= gate->open);
    assert((gate->silent == 0) == (gate->oldest == NONE) && (gate->oldest == NONE) == (gate->newest == NONE));
}

void admission_heard(struct admission *gate, int fd)
{
    if (fd < 0 || (size_t)fd >= gate->door_count || !gate->doors[fd].open || gate->doors[fd].heard)
        return;
    if (!gate->doors[fd].evicted)
        unlink_silent(gate, fd);
    gate->doors[fd].heard = true;
}

/* --- libzmq's questions --- */

static void send_answer(const struct zmq_socket *s, const struct zap_answer *answer)
{
    const struct zap_frame frames[] = {
        {"1.0", 3}, {answer->id, answer->id_size}, {answer->code, strlen(answer->code)}, {"", 0}, {"", 0},
        {"", 0}};
    const size_t count = sizeof frames / sizeof *frames;
    for (size_t i = 0; i < count; i++)
        /* A reply that cannot be sent leaves a connection unanswered, which its time limit ends. */
        (void)zmq_calls.send(s->zap, frames[i].data, frames[i].size,
                             ZMQ_DONTWAIT | (i + 1 < count ? ZMQ_SNDMORE : 0));
}

/* Number of its frames, 0 if there is none; the last place takes all excess ones. */
static size_t receive_question(const struct zmq_socket *s, zmq_msg_t messages[ZAP_FRAMES_LIMIT])
{
    size_t count = 0;
    for (bool more = true; more; count++) {
        zmq_msg_t *message = &messages[count < ZAP_FRAMES_LIMIT ? count : ZAP_FRAMES_LIMIT - 1];
        if (zmq_calls.msg_recv(message, s->zap, ZMQ_DONTWAIT) < 0)
            break;
        more = zmq_calls.msg_more(message);
    }
    return count;
}

/* Whether there was a request. */
static bool answer_one(struct admission *gate, const struct zmq_socket *s, struct instant now)
{
    zmq_msg_t messages[ZAP_FRAMES_LIMIT];
    struct zap_frame frames[ZAP_FRAMES_LIMIT];
    struct zap_answer answer = {0};
    /* Idle connections are closed if their room is needed. */
    unsigned speaking = gate->open - gate->silent - gate->evicted;
    const struct zap_rules rules = {gate->client_public, speaking > gate->open_limit};
    for (int i = 0; i < ZAP_FRAMES_LIMIT; i++)
        zmq_calls.msg_init(&messages[i]);
    size_t count = receive_question(s, messages);
    for (int i = 0; i < ZAP_FRAMES_LIMIT; i++)
        frames[i] = (struct zap_frame){zmq_calls.msg_data(&messages[i]), zmq_calls.msg_size(&messages[i])};
    if (count) {
        zap_decide(&rules, frames, count, &answer);
        send_answer(s, &answer);
    }
    for (int i = 0; i < ZAP_FRAMES_LIMIT; i++)
        zmq_calls.msg_close(&messages[i]);
    if (answer.refused) {
        gate->denied++;
        refuse(gate, answer.refusal, answer.address, now);
    }
    return count > 0;
}

size_t admission_answer(struct admission *gate, const struct zmq_socket *s, struct instant now)
{
    size_t count = 0;
    while (count < ANSWERS_A_TURN && answer_one(gate, s, now))
        count++;
    return count;
}

/* --- the log --- */

void admission_tick(struct admission *gate, struct instant now)
{
    char line[REFUSAL_LINE_SIZE];
    while (rejection_log_next(&gate->refusals, now, line))
        log_warning(gate->log, "%s", line);
}

struct instant admission_deadline(const struct admission *gate)
{
    return rejection_log_deadline(&gate->refusals);
}

const char *admission_address(const struct admission *gate, int fd)
{
    bool known = fd >= 0 && (size_t)fd < gate->door_count && gate->doors[fd].open;
    return known ? gate->doors[fd].address : "";
}

void admission_describe(const struct admission *gate, char *out, size_t size)
{
    char line[REFUSAL_LINE_SIZE];
    if (rejection_log_total(&gate->refusals, line) && strlen(line) + 3 <= size)
        (void)snprintf(out, size, "; %s", line);
}

void admission_close(struct admission *gate)
{
    char line[REFUSAL_LINE_SIZE];
    if (rejection_log_total(&gate->refusals, line))
        log_info(gate->log, "%s", line);
    mem_free(gate->doors);
    gate->doors = NULL;
    gate->door_count = 0;
}
