/* tcpstore_greeting.c - see tcpstore_greeting.h.
 *
 * A client of torch 2.2 and later sends 0 and a magic number. A client of torch 2.1 sends a request with its
 * own numbers: 0 is SET, and a length follows. Read as a length, the magic number would be a key of a
 * gigabyte, so the two cannot be confused. */
#include "rendezvous/tcpstore/tcpstore_greeting.h"

#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"

enum { ZMQ_FIRST_BYTE = 0xFF };

static int reject_greeting(const char *data, struct muster_error *err)
{
    if ((unsigned char)data[0] == ZMQ_FIRST_BYTE)
        return error_set(
            err, MUSTER_E_PROTOCOL,
            "its first byte is 0xFF, as in the greeting of a muster agent: not a TCPStore client. This port "
            "is the workers' store; agents connect to the job's --master-port or --rdzv-endpoint");
    return error_set(
        err, MUSTER_E_PROTOCOL,
        "its first byte is 0x%02X, and the bytes after it are neither VALIDATE nor a request of torch 2.1: "
        "not a TCPStore client",
        (unsigned)(unsigned char)data[0]);
}

/* The number in torch 2.1's first request (the length of a key, the count of a list) from the bytes received
 * so far: further bytes can only make it larger. */
static uint64_t number_so_far(const char *data, size_t length)
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
    size_t available = length - 1 < sizeof magic ? length - 1 : sizeof magic;
    *dialect = TCPSTORE_DIALECT_UNKNOWN;
    if (query == TCPSTORE_SET && !memcmp(data + 1, magic, available)) {
        if (available == sizeof magic)
            *dialect = TCPSTORE_DIALECT_VALIDATED;
        return 0;
    }
    if (query > TCPSTORE_CANCEL_WAIT)
        return reject_greeting(data, err);
    bool has_list = query == TCPSTORE_CHECK || query == TCPSTORE_WAIT || query == TCPSTORE_MULTI_GET ||
                    query == TCPSTORE_MULTI_SET;
    bool is_bare = query == TCPSTORE_GETNUMKEYS || query == TCPSTORE_CANCEL_WAIT;
    if (!is_bare && number_so_far(data + 1, length - 1) > (has_list ? limits->wait_keys : limits->key_bytes))
        return reject_greeting(data, err);
    *dialect = TCPSTORE_DIALECT_2_1;
    return 0;
}

bool tcpstore_greeting_key(struct store_bytes key)
{
    static const char workers[] = "init/"; /* the count of workers is the only key without a prefix */
    return (key.length > 0 && *(const char *)key.data == '/') ||
           (key.length == sizeof workers - 1 && !memcmp(key.data, workers, key.length));
}
