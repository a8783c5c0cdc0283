/* pmi_exchange.c - see pmi_exchange.h. */
#include "launcher/pmi/pmi_exchange.h"

#include <stdio.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t look_ns = NS_PER_S / 4;  /* between two looks at *ends */
static const int64_t last_ns = 10 * NS_PER_S; /* for a value that is there */

int pmi_exchange(struct tcpstore_client *client, int number, int nodes, const struct buffer *own,
                 struct buffer *out, const atomic_bool *ends, struct muster_error *err)
{
    char texts[32], count[32], all[32];
    (void)snprintf(texts, sizeof texts, "texts/%d", number);
    (void)snprintf(count, sizeof count, "count/%d", number);
    (void)snprintf(all, sizeof all, "all/%d", number);
    int64_t come = 0;
    if (tcpstore_client_append(client, texts, own->data, own->length, err) < 0 ||
        tcpstore_client_add(client, count, 1, &come, err) < 0)
        return -1;
    scope_buffer unread = {0};
    struct buffer *last = out ? out : &unread;
    if (come == nodes)
        return tcpstore_client_get(client, texts, last, last_ns, err) < 0 ||
                       tcpstore_client_set(client, all, last->data, last->length, err) < 0
                   ? -1
                   : 0;
    if (!out)
        return 0;
    while (!atomic_load(ends)) {
        struct muster_error waited = {0};
        if (tcpstore_client_get(client, all, out, look_ns, &waited) == 0)
            return 0;
        if (waited.code != MUSTER_E_TIMEOUT) {
            *err = waited;
            return -1;
        }
    }
    return error_set(err, MUSTER_E_CANCELLED, "the round ends");
}
