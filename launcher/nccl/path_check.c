/* path_check.c - see path_check.h. */
#include "launcher/nccl/path_check.h"

#include <stdio.h>
#include <string.h>

#include "launcher/nccl/path_probe.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

static const int64_t patience_ns = 60 * NS_PER_S; /* for nodes that are slow to start their workers */
static const int64_t probe_ns = 3 * NS_PER_S;     /* the kernel sends again after 0.2, 0.6 and 1.4 s */

/* As it is in the store. */
struct path_listing {
    char host[PATH_CHECK_NAME], address[64];
    unsigned char token[PATH_TOKEN];
    uint16_t port;
};

/* Sizes of packets in use: Ethernet's, with the headers of tunnels less, and the least that IPv6 and IPv4
 * promise. */
static const int sizes[] = {9000, 8950, 8900, 8500, 4096, 2048, 1500, 1492, 1480,
                            1476, 1460, 1450, 1440, 1430, 1420, 1410, 1400, 1390,
                            1380, 1370, 1350, 1320, 1300, 1280, 1200, 1000, 576};
enum { SIZES = sizeof sizes / sizeof *sizes };

int path_check_peers(int rank, int count, int peers[PATH_CHECK_PEERS])
{
    int found = 0;
    for (int distance = 1; distance < count && found < PATH_CHECK_PEERS;
         distance = count <= PATH_CHECK_PEERS ? distance + 1 : 2 * distance)
        peers[found++] = (rank + distance) % count;
    return found;
}

/* The largest of the sizes below a packet's that arrives; 0: none does. */
static int largest_that_passes(const struct path_probe *stalled)
{
    struct path_probe probes[SIZES];
    int count = 0, largest = 0;
    for (int i = 0; i < SIZES; i++)
        if (sizes[i] < stalled->packet) {
            probes[count] = *stalled;
            probes[count++].largest = sizes[i];
        }
    path_probe_run(probes, count, instant_add(clock_now(NULL), probe_ns));
    for (int i = 0; i < count; i++)
        if (probes[i].result == PATH_PASSES && probes[i].largest > largest)
            largest = probes[i].largest;
    return largest;
}

static void describe_path(struct path_check *check, const struct path_listing *own,
                          const struct path_listing *peer, const struct path_probe *probe)
{
    struct path_probe again = *probe;
    if (probe->result ==
        PATH_STALLS) /* once more: a router's report may have come late, or the loss was by chance */
        path_probe_run(&again, 1, instant_add(clock_now(NULL), probe_ns));
    if (again.result == PATH_PASSES)
        return;
    int passes = again.result == PATH_STALLS ? largest_that_passes(&again) : 0;
    buffer_printf(&check->findings, "from %s (%s) to %s (%s) ", own->host, own->address, peer->host,
                  peer->address);
    if (again.result == PATH_UNREACHED)
        buffer_printf(
            &check->findings,
            "no connection opens (port %u): a firewall or a NetworkPolicy keeps the workers apart as well\n",
            (unsigned)peer->port);
    else if (passes)
        buffer_printf(
            &check->findings,
            "packets of %d bytes are lost and no router reports it, packets of %d bytes arrive: gloo and "
            "NCCL hang there. Give the interfaces an MTU of %d, or let the ICMP messages "
            "\"fragmentation needed\" and \"packet too big\" pass\n",
            again.packet, passes, passes);
    else
        buffer_printf(&check->findings, "a connection opens, and packets of any size are lost on it\n");
}

static int take_listing(struct tcpstore_client *client, int rank, struct path_listing *out,
                        struct muster_error *err)
{
    scope_buffer data = {0};
    char key[16];
    (void)snprintf(key, sizeof key, "%d", rank);
    if (tcpstore_client_get(client, key, &data, patience_ns, err) < 0)
        return -1;
    if (data.length != sizeof *out)
        return error_set(err, MUSTER_E_PROTOCOL, "rank %d's agent is of another version", rank);
    memcpy(out, data.data, sizeof *out);
    out->host[sizeof out->host - 1] = out->address[sizeof out->address - 1] = '\0';
    return 0;
}

static int probe_peers(struct path_check *check, struct tcpstore_client *client,
                       const struct path_listing *own)
{
    int ranks[PATH_CHECK_PEERS], count = path_check_peers(check->rank, check->count, ranks);
    scope_free struct path_listing *peers = mem_calloc(PATH_CHECK_PEERS, sizeof *peers);
    struct path_probe probes[PATH_CHECK_PEERS] = {0};
    if (!peers)
        return error_set(&check->err, MUSTER_E_NOMEM, "no memory for the nodes of a path check");
    for (int i = 0; i < count; i++) {
        if (take_listing(client, ranks[i], &peers[i], &check->err) < 0)
            return -1;
        (void)snprintf(probes[i].address, sizeof probes[i].address, "%s", peers[i].address);
        memcpy(probes[i].token, peers[i].token, PATH_TOKEN);
        probes[i].port = peers[i].port;
    }
    check->peers = count;
    path_probe_run(probes, count, instant_add(clock_now(NULL), probe_ns));
    for (int i = 0; i < count; i++)
        describe_path(check, own, &peers[i], &probes[i]);
    return 0;
}

static int exchange_probes(struct path_check *check, struct tcpstore_client *client, struct path_listing *own)
{
    char key[16];
    int64_t done = 0;
    scope_buffer nothing = {0};
    (void)snprintf(own->host, sizeof own->host, "%s", check->host);
    (void)snprintf(own->address, sizeof own->address, "%s", check->address);
    (void)snprintf(key, sizeof key, "%d", check->rank);
    if ((!*own->address &&
         tcpstore_client_address(client, own->address, sizeof own->address, &check->err) < 0) ||
        tcpstore_client_set(client, key, own, sizeof *own, &check->err) < 0 ||
        probe_peers(check, client, own) < 0 || tcpstore_client_add(client, "done", 1, &done, &check->err) < 0)
        return -1;
    if (done == check->count)
        return tcpstore_client_set(client, "over", "1", 1, &check->err);
    return tcpstore_client_get(client, "over", &nothing, patience_ns,
                               &check->err); /* others send to us meanwhile */
}

void path_check_run(struct path_check *check)
{
    const struct tcpstore_client_options options = {.host = check->store,
                                                    .port = check->port,
                                                    .prefix = check->prefix,
                                                    .key = check->has_key ? check->key : NULL,
                                                    .timeout_ns = patience_ns};
    struct path_listing own = {0};
    struct path_receiver *receiver = path_receiver_start(&own.port, own.token, &check->err);
    struct tcpstore_client *client GUARD(guard_tcpstore_client) =
        receiver ? tcpstore_client_connect(&options, &check->err) : NULL;
    if (client)
        (void)exchange_probes(check, client, &own); /* check->err is the caller's */
    path_receiver_stop(receiver);
}
