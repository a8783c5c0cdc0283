/* admission.c - see server_internal.h. */
#include "rendezvous/server/server_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/address.h"
#include "proto/base/mem.h"
#include "rendezvous/security/zap.h"
#include "rendezvous/zmq/handshake.h"
#include "rendezvous/zmq/zmq_calls.h"

enum {
    ANSWERS_A_TURN = 1000,
    OPEN_BASE = 1024, /* unauthenticated connections that are tolerated, next to the job's own connections */
    OPEN_PER_SLOT = 4,
    OPEN_SPARE = 64,  /* the same if descriptors are few */
    KEPT_FREE = 128,  /* descriptors, for workers, logs and the store */
    MAY_SPEAK = 16,   /* idle connections that are kept in any case: each new connection is one at first */
    PASSED_OVER = 32, /* at most, before one is closed */
    NONE = -1,
    SLOTS_LIMIT = 65536, /* connections with higher descriptors are not known */
    SLOTS_SPARE = 4096,  /* and are never made: that many descriptors are the agent's own, at most */
    FIRST_SLOTS = 64,
    LOOKS_A_NODE = 4, /* a search looks once or twice; its program may be started again */
};
static const int64_t look_ns = NS_PER_S;
_Static_assert((int)REJECTION_ADDRESS_SIZE == (int)ADDRESS_TEXT, "every address fits");

/* An idle unauthenticated connection costs some 30 KB until its time is up: twice the admitted ones is
 * enough. Descriptors of connections are missing to the agent, which has workers to start. */
static unsigned full_at(unsigned open_limit, unsigned slots, uint64_t descriptors)
{
    uint64_t most = descriptors / 2;
    if (most < slots + OPEN_SPARE)
        most = slots + OPEN_SPARE;
    if (most + KEPT_FREE > descriptors)
        most = descriptors > 2 * KEPT_FREE ? descriptors - KEPT_FREE : descriptors / 2;
    if (most > SLOTS_LIMIT - SLOTS_SPARE)
        most = SLOTS_LIMIT - SLOTS_SPARE;
    return most < 2 * (uint64_t)open_limit ? (unsigned)most : 2 * open_limit;
}

void admission_init(struct admission *admission, const unsigned char *client_public, int nodes, int slots,
                    uint64_t descriptors, const struct log_sink *log)
{
    *admission = (struct admission){
        .client_public = client_public,
        .log = log,
        .open_limit = OPEN_BASE + OPEN_PER_SLOT * (unsigned)slots,
        .newest = NONE,
        .oldest = NONE,
        .pending = -1,
        .patience_ns = zmq_socket_greeting_limit_ms(nodes) * NS_PER_MS,
        .looks_left = LOOKS_A_NODE * ((unsigned)nodes + 1),
    };
    admission->full_at = full_at(admission->open_limit, (unsigned)slots, descriptors);
    if (admission->open_limit > admission->full_at)
        admission->open_limit = admission->full_at;
    if (admission->full_at < (unsigned)nodes)
        log_warning(log,
                    "this process may have %" PRIu64 " descriptors (ulimit -n), enough for connections of %u "
                    "nodes: the job is for up to %d",
                    descriptors, admission->full_at, nodes);
}

static void log_rejection(struct admission *admission, enum rejection reason, const char *address,
                          struct instant now)
{
    char line[REJECTION_LINE_SIZE];
    if (rejection_log_note(&admission->rejections, reason, address, now, line))
        log_warning(admission->log, "%s", line);
}

/* --- connections --- */

/* NULL if there is no room to record it. */
static struct admission_slot *slot_of(struct admission *admission, int fd)
{
    if (fd < 0 || fd >= SLOTS_LIMIT)
        return NULL;
    if ((size_t)fd < admission->slot_count)
        return &admission->slots[fd];
    size_t count = admission->slot_count ? admission->slot_count : FIRST_SLOTS;
    while (count <= (size_t)fd)
        count *= 2;
    struct admission_slot *slots = mem_realloc(admission->slots, count, sizeof *slots);
    if (!slots)
        return NULL;
    memset(slots + admission->slot_count, 0, (count - admission->slot_count) * sizeof *slots);
    admission->slots = slots;
    admission->slot_count = count;
    return &slots[fd];
}

/* The peer's port; 0 if unknown. */
static uint16_t read_address(int fd, char out[REJECTION_ADDRESS_SIZE])
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    out[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&peer, &size) < 0 || !*address_text((struct sockaddr *)&peer, out))
        return 0;
    return address_port((struct sockaddr *)&peer);
}

/* The idle ones are a chain through their slots. */
static void link_silent(struct admission *admission, int fd, struct instant now)
{
    struct admission_slot *slot = &admission->slots[fd];
    slot->since = now;
    slot->newer = NONE;
    slot->older = admission->newest;
    *(admission->newest == NONE ? &admission->oldest : &admission->slots[admission->newest].newer) = fd;
    admission->newest = fd;
    admission->silent++;
}

static void unlink_silent(struct admission *admission, int fd)
{
    const struct admission_slot *slot = &admission->slots[fd];
    *(slot->newer == NONE ? &admission->newest : &admission->slots[slot->newer].older) = slot->older;
    *(slot->older == NONE ? &admission->oldest : &admission->slots[slot->older].newer) = slot->newer;
    admission->silent--;
}

/* Whether anything was received on the connection: a greeting in progress. */
static bool has_sent(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_bytes_received;
}

/* Connections that greet get another turn: with thousands of unauthenticated connections an agent would
 * hardly get to its JOIN. */
static int choose_oldest(struct admission *admission, struct instant now)
{
    for (int i = 0; i < PASSED_OVER && has_sent(admission->oldest); i++) {
        int fd = admission->oldest;
        unlink_silent(admission, fd);
        link_silent(admission, fd, now);
    }
    return admission->oldest;
}

/* Its descriptor is libzmq's, which closes it at the end that it sees, and reports that before: a number
 * that belongs to another connection by now has another peer. */
static void shut(int fd, const struct admission_slot *slot)
{
    char address[REJECTION_ADDRESS_SIZE];
    if (read_address(fd, address) == slot->port && !strcmp(address, slot->address))
        (void)shutdown(fd, SHUT_RDWR); /* it may have gone */
}

static void evict(struct admission *admission, int fd)
{
    struct admission_slot *slot = &admission->slots[fd];
    unlink_silent(admission, fd);
    slot->evicted = true;
    admission->evicted++;
    shut(fd, slot);
}

static struct instant oldest_limit(const struct admission *admission)
{
    return admission->oldest == NONE
               ? INSTANT_NEVER
               : instant_add(admission->slots[admission->oldest].since, admission->patience_ns);
}

static void evict_late(struct admission *admission, struct instant now)
{
    while (instant_reached(now, oldest_limit(admission))) {
        admission->slots[admission->oldest].late = true;
        evict(admission, admission->oldest);
    }
}

static void forget(struct admission *admission, int fd)
{
    struct admission_slot *slot = &admission->slots[fd];
    if (!slot->active && !slot->evicted)
        unlink_silent(admission, fd);
    admission->evicted -= slot->evicted;
    admission->open--;
    slot->open = false;
}

static void accepted(struct admission *admission, int fd, struct instant now)
{
    struct admission_slot *slot = slot_of(admission, fd);
    if (!slot)
        return;
    if (slot->open)
        forget(admission, fd); /* its end was not reported */
    admission->open++;
    *slot = (struct admission_slot){.open = true};
    slot->port = read_address(fd, slot->address);
    link_silent(admission, fd, now);
    while (admission->open - admission->evicted > admission->full_at && admission->silent > MAY_SPEAK)
        evict(admission, choose_oldest(admission, now));
}

/* Whether the connection that ends without a reason has greeted: a member that left, or was killed, before it
 * sent a message. libzmq's report of a greeting names no connection, so the greetings are counted; those of
 * connections that were closed here are forgotten with the last idle ones. */
static bool has_greeted(struct admission *admission)
{
    const bool has = admission->greeted > 0;
    const int idle = (int)(admission->silent + admission->evicted);
    admission->greeted -= has;
    admission->greeted = admission->greeted < idle ? admission->greeted : idle;
    return has;
}

/* A peer that connects, says nothing and ends it at once has looked whether a program listens: a node of
 * several with the server's name (listener_search.h), or a probe. Many are more than the job's nodes look. */
static bool has_looked(struct admission *admission, const struct admission_slot *slot, int reason,
                       struct instant now)
{
    if (slot->evicted || reason != REJECTION_SILENT || instant_diff_ns(now, slot->since) >= look_ns ||
        !admission->looks_left)
        return false;
    admission->looks_left--;
    return true;
}

/* The reason of a failed greeting comes right before the end of its connection. One rejected by ZAP is
 * counted already. A peer that speaks another protocol may end without a reason. */
static void closed(struct admission *admission, int fd, struct instant now)
{
    struct admission_slot *slot = slot_of(admission, fd);
    bool known = slot && slot->open;
    int reason = admission->pending;
    admission->pending = -1;
    if (known)
        forget(admission, fd);
    if (known && (slot->active || slot->endless || has_looked(admission, slot, reason, now)))
        return;
    const bool greeted = reason < 0 && !admission->denied && has_greeted(admission);
    if (known && slot->evicted)
        log_rejection(admission, slot->late ? REJECTION_SILENT : REJECTION_EVICTED, slot->address, now);
    else if (reason < 0 && admission->denied)
        admission->denied--;
    else if (!greeted)
        log_rejection(admission, reason < 0 ? REJECTION_PROTOCOL : (enum rejection)reason,
                      known ? slot->address : "", now);
}

static int reason_of(const struct admission *admission, enum handshake_fault fault)
{
    switch (fault) {
    case HANDSHAKE_MISMATCH:
        return admission->client_public ? REJECTION_NO_SECRET : REJECTION_SECRET_UNWANTED;
    case HANDSHAKE_CRYPTO:
        return REJECTION_OTHER_SECRET;
    case HANDSHAKE_STRANGE:
        return REJECTION_PROTOCOL;
    case HANDSHAKE_BROKEN:
        return REJECTION_SILENT;
    default: /* set by admission_answer */
        return -1;
    }
}

void admission_watch(struct admission *admission, int event, int value, struct instant now)
{
    enum handshake_fault fault = handshake_fault(event, value);
    if (fault != HANDSHAKE_FINE)
        admission->pending = reason_of(admission, fault);
    else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
        admission->greeted++;
    else if (event == ZMQ_EVENT_ACCEPTED)
        accepted(admission, value, now);
    else if (event == ZMQ_EVENT_DISCONNECTED)
        closed(admission, value, now);
    /* each open connection is idle, closed by us, or active */
    assert(admission->silent + admission->evicted <= admission->open);
    assert((admission->silent == 0) == (admission->oldest == NONE) &&
           (admission->oldest == NONE) == (admission->newest == NONE));
}

void admission_close_endless(struct admission *admission, int fd, struct instant now)
{
    struct admission_slot *slot = slot_of(admission, fd);
    if (!slot || !slot->open || slot->endless)
        return;
    slot->endless = true;
    log_rejection(admission, REJECTION_ENDLESS, slot->address, now);
    shut(fd, slot);
}

void admission_note_active(struct admission *admission, int fd)
{
    if (fd < 0 || (size_t)fd >= admission->slot_count || !admission->slots[fd].open ||
        admission->slots[fd].active)
        return;
    if (!admission->slots[fd].evicted)
        unlink_silent(admission, fd);
    admission->slots[fd].active = true;
    admission->greeted--;
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
static bool answer_one(struct admission *admission, const struct zmq_socket *s, struct instant now)
{
    zmq_msg_t messages[ZAP_FRAMES_LIMIT];
    struct zap_frame frames[ZAP_FRAMES_LIMIT];
    struct zap_answer answer = {0};
    /* Idle connections are closed if their room is needed. */
    unsigned speaking = admission->open - admission->silent - admission->evicted;
    const struct zap_rules rules = {admission->client_public, speaking > admission->open_limit};
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
        admission->denied++;
        log_rejection(admission, answer.rejection, answer.address, now);
    }
    return count > 0;
}

size_t admission_answer(struct admission *admission, const struct zmq_socket *s, struct instant now)
{
    size_t count = 0;
    while (count < ANSWERS_A_TURN && answer_one(admission, s, now))
        count++;
    return count;
}

/* --- the log --- */

void admission_tick(struct admission *admission, struct instant now)
{
    char line[REJECTION_LINE_SIZE];
    evict_late(admission, now);
    while (rejection_log_next(&admission->rejections, now, line))
        log_warning(admission->log, "%s", line);
}

struct instant admission_deadline(const struct admission *admission)
{
    return instant_min(rejection_log_deadline(&admission->rejections), oldest_limit(admission));
}

const char *admission_address(const struct admission *admission, int fd)
{
    bool known = fd >= 0 && (size_t)fd < admission->slot_count && admission->slots[fd].open;
    return known ? admission->slots[fd].address : "";
}

void admission_describe(const struct admission *admission, char *out, size_t size)
{
    char line[REJECTION_LINE_SIZE];
    if (rejection_log_total(&admission->rejections, line) && strlen(line) + 3 <= size)
        (void)snprintf(out, size, "; %s", line);
}

void admission_close(struct admission *admission)
{
    char line[REJECTION_LINE_SIZE];
    if (rejection_log_total(&admission->rejections, line))
        log_info(admission->log, "%s", line);
    mem_free(admission->slots);
    admission->slots = NULL;
    admission->slot_count = 0;
}
