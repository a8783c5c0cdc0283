/* admission.h - the server's door: answers libzmq's questions about who may come in, and keeps the book of
 * who was refused and what the log was told of it (rejection_log.h). For the thread that owns the server's
 * sockets.
 *
 * A connection is known by its descriptor from its acceptance on. Its address is asked for at that moment;
 * for one that has already gone, or whose number has gone to the next one, it is missing or the next one's.
 *
 * libzmq accepts up to the last descriptor of the process, and then the agent could start no worker. So where
 * too many are open the oldest of those that have said nothing is ended: an agent greets and says JOIN at
 * once, and stays. */
#ifndef MUSTER_RENDEZVOUS_SERVER_ADMISSION_H
#define MUSTER_RENDEZVOUS_SERVER_ADMISSION_H

#include "proto/base/log.h"
#include "rendezvous/security/rejection_log.h"
#include "rendezvous/zmq/zmq_socket.h"

struct admission_slot {
    bool open, heard; /* heard: a message came from it */
    bool evicted;     /* it was ended, and is not closed yet */
    uint16_t port;    /* of the peer */
    int newer, older; /* neighbours among the silent ones, by descriptor; -1: none */
    char address[REFUSAL_ADDRESS_SIZE];
};

/* Zeroed but for the first part. */
struct admission {
    const unsigned char *client_public; /* of the job; NULL: no secret */
    const struct log_sink *log;
    unsigned open_limit; /* without a secret: newcomers are sent away while more connections are open that
                            have spoken */
    unsigned full_at;    /* while so many are open, each newcomer costs the oldest silent one its place */

    struct admission_slot *doors; /* by descriptor */
    size_t door_count;
    unsigned open, evicted, silent;
    int newest, oldest; /* silent door; -1: none */
    unsigned denied;    /* told "not you" and not yet closed */
    int pending;        /* enum refusal of the connection that is about to be closed; -1: none is known */
    struct rejection_log refusals;
};

/* descriptors: how many this process may have, of which connections get half, or more where the job needs
 * more. */
void admission_init(struct admission *gate, const unsigned char *client_public, int slots,
                    uint64_t descriptors, const struct log_sink *log);
/* An event of the server's socket. */
void admission_watch(struct admission *gate, int event, int value, struct instant now);
/* The address of a connection's other end; "" where it is not known. */
const char *admission_address(const struct admission *gate, int fd);
/* A message came on the connection; -1: unknown. */
void admission_heard(struct admission *gate, int fd);
/* Answers a bounded number of questions that wait. Returns how many. */
size_t admission_answer(struct admission *gate, const struct zmq_socket *s, struct instant now);
/* Logs what has become due; admission_deadline says when. */
void admission_tick(struct admission *gate, struct instant now);
struct instant admission_deadline(const struct admission *gate);
/* "; connections that were refused: ..." where there were any; NUL-terminated, nothing where it does not fit.
 */
void admission_describe(const struct admission *gate, char *out, size_t size);
/* Logs the totals, where there are any, and frees. */
void admission_close(struct admission *gate);

#endif
