/* tcpstore_client_connect.c - see tcpstore_client.h: connects with retries until the deadline, and
 * destroys. */
#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_call.h"
#include "rendezvous/tcpstore/tcpstore_stream.h"

#define TIMEOUT_NS      (300 * NS_PER_S) /* torch's default for a store */
#define GREETING_NS     (30 * NS_PER_S) /* a busy server of thousands of clients may take a while to accept */
#define OLD_GREETING_NS (2 * NS_PER_S)  /* a newer server does not reply to a greeting of 2.1 */
#define BACKOFF_MIN_NS  (10 * NS_PER_MS)
#define BACKOFF_MAX_NS  (1 * NS_PER_S)

/* VALIDATE has no reply. The CHECK after it shows that the server understood it, and whether it is muster's:
 * any other server has no such key. PING would not do: servers of torch 2.2 to 2.4 close the connection at
 * it. */
static int send_proof(struct tcpstore_client *c, struct instant deadline, struct muster_error *err)
{
    uint64_t length = 0;
    unsigned char challenge[MAC_SIZE], proof[MAC_SIZE];
    buffer_clear(&c->request);
    tcpstore_call_put_query(c, TCPSTORE_GET);
    tcpstore_call_put_bytes(c,
                            (struct store_bytes){TCPSTORE_CHALLENGE_KEY, sizeof TCPSTORE_CHALLENGE_KEY - 1});
    if (c->request.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the greeting");
    if (tcpstore_stream_send(c->fd, c->request.data, c->request.length, deadline, err) ||
        tcpstore_call_receive(c, &length, sizeof length, deadline, err))
        return error_wrap(err, "greeting");
    if (le64toh(length) != sizeof challenge)
        return error_set(err, MUSTER_E_PROTOCOL,
                         "it does not ask for a proof of the job's secret, which this job has: it is not "
                         "this job's agent");
    if (tcpstore_call_receive(c, challenge, sizeof challenge, deadline, err))
        return error_wrap(err, "greeting");
    tcpstore_prove(c->key, challenge, proof);
    buffer_clear(&c->request);
    tcpstore_call_put_query(c, TCPSTORE_SET);
    tcpstore_call_put_bytes(c, (struct store_bytes){TCPSTORE_PROOF_KEY, sizeof TCPSTORE_PROOF_KEY - 1});
    tcpstore_call_put_bytes(c, (struct store_bytes){proof, sizeof proof});
    if (c->request.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the greeting");
    return tcpstore_stream_send(c->fd, c->request.data, c->request.length, deadline, err)
               ? error_wrap(err, "greeting")
               : 0;
}

static int send_greeting(struct tcpstore_client *c, struct instant deadline, struct muster_error *err)
{
    uint8_t reply = TCPSTORE_NOT_READY;
    deadline =
        instant_min(deadline, instant_add(clock_now(NULL), c->old_server ? OLD_GREETING_NS : GREETING_NS));
    buffer_clear(&c->request);
    if (!c->old_server) {
        tcpstore_call_put_query(c, TCPSTORE_VALIDATE);
        tcpstore_call_put_u32(c, TCPSTORE_MAGIC);
    }
    tcpstore_call_put_query(c, TCPSTORE_CHECK);
    tcpstore_call_put_u64(c, 1);
    tcpstore_call_put_bytes(c, (struct store_bytes){TCPSTORE_MUSTER_KEY, sizeof TCPSTORE_MUSTER_KEY - 1});
    if (c->request.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the greeting");
    if (tcpstore_stream_send(c->fd, c->request.data, c->request.length, deadline, err) ||
        tcpstore_call_receive(c, &reply, sizeof reply, deadline, err))
        return error_wrap(err, "greeting");
    if (reply != TCPSTORE_READY && reply != TCPSTORE_NOT_READY)
        return error_set(err, MUSTER_E_PROTOCOL, "it replied to CHECK with 0x%02X: not a TCPStore", reply);
    c->muster_server = reply == TCPSTORE_READY;
    return c->muster_server && c->key ? send_proof(c, deadline, err) : 0;
}

/* Between half of the delay and all of it, by the clock's low bits: clients that failed together do not retry
 * together. */
static int64_t jittered(int64_t delay_ns)
{
    uint64_t bits = (uint64_t)clock_now(NULL).ns * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)getpid() << 32;
    return delay_ns / 2 + (int64_t)((bits >> 33) % (uint64_t)(delay_ns / 2));
}

static int connect_until(struct tcpstore_client *c, const struct tcpstore_client_options *options,
                         struct muster_error *err)
{
    struct instant start = clock_now(NULL), deadline = instant_add(start, c->timeout_ns);
    int64_t delay = BACKOFF_MIN_NS;
    struct muster_error cause = {0};
    for (unsigned attempts = 1;; attempts++) {
        struct muster_error failed = {0};
        c->fd = tcpstore_stream_connect(c->host, c->port, deadline, &failed);
        if (c->fd >= 0) {
            if (!send_greeting(c, deadline, &failed))
                return 0;
            /* A server of torch 2.1 reads VALIDATE as a key of a terabyte and closes the connection. */
            c->old_server = !c->old_server && failed.code == MUSTER_E_PEER;
            close(c->fd);
            c->fd = -1;
            c->input_start = c->input_end = 0;
        } else {
            c->old_server = false;
        }
        /* a time-out of our own explains less than the failure before it */
        if (failed.code != MUSTER_E_TIMEOUT || !cause.code)
            cause = failed;
        if (options->is_over && options->is_over(options->context))
            return error_set(err, MUSTER_E_CANCELLED, "the TCPStore at %s:%u is of a round that is over: %s",
                             c->host, c->port, cause.text);
        struct instant next = instant_add(clock_now(NULL), jittered(delay));
        bool final = failed.code == MUSTER_E_PROTOCOL || failed.code == MUSTER_E_NOMEM ||
                     failed.code == MUSTER_E_UNSUPPORTED;
        if (final || instant_reached(next, deadline))
            return error_set(
                err,
                !final                                ? MUSTER_E_TIMEOUT
                : failed.code == MUSTER_E_UNSUPPORTED ? MUSTER_E_IO
                                                      : failed.code,
                "cannot connect to the TCPStore at %s:%u: %u attempts in %.1f s; the last failed: %s",
                c->host, c->port, attempts,
                (double)instant_diff_ns(clock_now(NULL), start) / (double)NS_PER_S, cause.text);
        clock_sleep_until(next);
        delay = 2 * delay < BACKOFF_MAX_NS ? 2 * delay : BACKOFF_MAX_NS;
    }
}

struct tcpstore_client *tcpstore_client_connect(const struct tcpstore_client_options *options,
                                                struct muster_error *err)
{
    if (!options->host || !*options->host || !options->port) {
        error_set(err, MUSTER_E_INVALID, "a TCPStore client needs a host and a port, not \"%s\" and %u",
                  options->host ? options->host : "", options->port);
        return NULL;
    }
    struct tcpstore_client *c = mem_calloc(1, sizeof *c);
    if (c) {
        c->fd = -1;
        c->port = options->port;
        c->key = options->key;
        c->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : TIMEOUT_NS;
        c->host = mem_strdup(options->host);
        c->prefix = options->prefix ? mem_printf("/%s/", options->prefix) : mem_strdup("/");
    }
    if (!c || !c->host || !c->prefix)
        error_set(err, MUSTER_E_NOMEM, "no memory for a TCPStore client");
    else if (!connect_until(c, options, err)) {
        c->key = NULL;
        return c;
    }
    tcpstore_client_destroy(c);
    return NULL;
}

int tcpstore_client_duplicate(const struct tcpstore_client *c, struct muster_error *err)
{
    const int fd = c->fd < 0 ? -1 : fcntl(c->fd, F_DUPFD_CLOEXEC, 0);
    if (c->fd < 0)
        return error_set(err, MUSTER_E_STATE, "an earlier failure has closed this connection");
    return fd < 0 ? error_errno(err, "another descriptor of the connection to the store") : fd;
}

void tcpstore_client_destroy(struct tcpstore_client *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    buffer_free(&c->request);
    mem_free(c->host);
    mem_free(c->prefix);
    mem_free(c);
}
