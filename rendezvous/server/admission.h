/* admission.h - connection admission: ZAP handler, connection limits, rejection log (rejection_log.h). For
 * the thread that owns the server's sockets.
 *
 * A connection is identified by its descriptor from its acceptance on. Its address is read at that moment;
 * for one that has already gone, or whose number was reused, it is missing or the next one's.
 *
 * libzmq accepts up to the last descriptor of the process, and then the agent could start no worker. So
 * above the limit the oldest connection that has sent nothing is closed: an agent greets and sends JOIN at
 * once, and stays. */
#ifndef MUSTER_RENDEZVOUS_SERVER_ADMISSION_H
#define MUSTER_RENDEZVOUS_SERVER_ADMISSION_H

#include "proto/base/log.h"
#include "rendezvous/security/rejection_log.h"
#include "rendezvous/zmq/zmq_socket.h"

struct admission_slot {
    bool open, active; /* active: a message was received */
    bool evicted;      /* it was shut down, and is not closed yet */
    bool endless;      /* the same, and logged: its message had no end */
    uint16_t port;     /* of the peer */
    int newer, older;  /* neighbours among the idle ones, by descriptor; -1: none */
    char address[REJECTION_ADDRESS_SIZE];
};

/* Zeroed but for the first part. */
struct admission {
    const unsigned char *client_public; /* of the job; NULL: no secret */
    const struct log_sink *log;
    unsigned open_limit; /* without a secret: new connections are rejected while more connections that have
                            sent something are open */
    unsigned full_at;    /* while so many are open, each new connection closes the oldest idle one */

    struct admission_slot *slots; /* by descriptor */
    size_t slot_count;
    unsigned open, evicted, silent;
    int newest, oldest; /* idle slot; -1: none */
    unsigned denied;    /* rejected and not yet closed */
    int pending;        /* enum rejection of the connection that is about to be closed; -1: unknown */
    struct rejection_log rejections;
};

/* descriptors: this process's limit, of which connections get half, or more if the job needs more. */
void admission_init(struct admission *admission, const unsigned char *client_public, int slots,
                    uint64_t descriptors, const struct log_sink *log);
/* An event of the server's socket. */
void admission_watch(struct admission *admission, int event, int value, struct instant now);
/* The address of a connection's other end; "" if unknown. */
const char *admission_address(const struct admission *admission, int fd);
/* The connection is closed: it sends a message without an end. */
void admission_close_endless(struct admission *admission, int fd, struct instant now);
/* A message was received on the connection; -1: unknown. */
void admission_note_active(struct admission *admission, int fd);
/* Answers a bounded number of waiting ZAP requests. Returns how many. */
size_t admission_answer(struct admission *admission, const struct zmq_socket *s, struct instant now);
/* Logs all due lines; admission_deadline is the time of the next. */
void admission_tick(struct admission *admission, struct instant now);
struct instant admission_deadline(const struct admission *admission);
/* "; connections that were refused: ..." if there were any; NUL-terminated, nothing if it does not fit. */
void admission_describe(const struct admission *admission, char *out, size_t size);
/* Logs the totals, if there are any, and frees. */
void admission_close(struct admission *admission);

#endif
