/* tcpstore_greeting.c - see tcpstore_greeting.h.
 *
 * A client of torch 2.2 and later sends 0 and a magic number. One of torch 2.1 sends a request of its own
 * numbering, where 0 is SET and a length follows; the magic number would be the length of a key of a
 * gigabyte, so that the two cannot be taken for each other. */
#include "rendezvous/tcpstore/tcpstore_greeting.h"

#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"

enum { ZMQ_GREETS = 0xFF };

static int refuse_greeting(const char *data, struct muster_error *err)
{
    if ((unsigned char)data[0] == ZMQ_GREETS)
        return error_set(
            err, MUSTER_E_PROTOCOL,
            "its first byte is 0xFF, as an agent of muster greets: not a TCPStore client. This port is "
            "the workers' store; agents meet at the job's --master-port or --rdzv-endpoint");
    return error_set(
        err, MUSTER_E_PROTOCOL,
        "its first byte is 0x%02X, and what follows is neither VALIDATE nor a request of torch 2.1: "
        "not a TCPStore client",
        (unsigned)(unsigned char)data[0]);
}

/* The number of torch 2.1's first request (the length of a key, the count of a list) as far as it has
 * arrived: more bytes only make it larger. */
static uint64_t least_number(const char *data, size_t length)
{
    uint64_t number = 0;
    for (size_t i = 0; i < length && i < sizeof number; i++)
        number |= (uint64_t)(unsigned char)data[i] << (8 * i);
    return number;
}

int tcpstore_greeting(const char *data, size_t length, const struct store_limits *limits,
                      enum tcpstore_dialect *dialect, struct muster_error *err)
{
    static const char magic[] = {(char)0xCE, (char)0xF7, (char)0x85, 0x3C}; /* TCPSTORE_MAGIC on the wire */
    unsigned query = (unsigned char)data[0] + 1;
    size_t there = length - 1 < sizeof magic ? length - 1 : sizeof magic;
    *dialect = TCPSTORE_DIALECT_UNKNOWN;
    if (query == TCPSTORE_SET && !memcmp(data + 1, magic, there)) {
        if (there == sizeof magic)
            *dialect = TCPSTORE_DIALECT_VALIDATED;
        return 0;
    }
    if (query > TCPSTORE_CANCEL_WAIT)
        return refuse_greeting(data, err);
    bool has_list = query == TCPSTORE_CHECK || query == TCPSTORE_WAIT || query == TCPSTORE_MULTI_GET ||
                    query == TCPSTORE_MULTI_SET;
    bool is_bare = query == TCPSTORE_GETNUMKEYS || query == TCPSTORE_CANCEL_WAIT;
    if (!is_bare && least_number(data + 1, length - 1) > (has_list ? limits->wait_keys : limits->key_bytes))
        return refuse_greeting(data, err);
    *dialect = TCPSTORE_DIALECT_2_1;
    return 0;
}

bool tcpstore_greeting_key(struct store_bytes key)
{
    static const char workers[] = "init/"; /* the count of workers is the only key without a prefix */
    return (key.length > 0 && *(const char *)key.data == '/') ||
           (key.length == sizeof workers - 1 && !memcmp(key.data, workers, key.length));
}
