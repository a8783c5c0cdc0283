/* node_facts.c - see node_facts.h. */
#include "runtime/nccl/doctor/node_facts.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/nccl/decide/decide.h"

/* --- facts of one node --- */

/* The first bits of an address, as text with their number. */
static void write_network(const struct description_address *address, char *out, size_t size)
{
    unsigned char bytes[16] = {0};
    char text[INET6_ADDRSTRLEN];
    const int family = address->family == 4 ? AF_INET : AF_INET6, bits = address->family == 4 ? 32 : 128;
    *out = 0;
    if (address->prefix < 1 || address->prefix > bits - 2 || inet_pton(family, address->text, bytes) != 1)
        return; /* networks of one or two addresses: clouds and some pods' */
    for (int bit = address->prefix; bit < bits; bit++)
        bytes[bit / 8] &= (unsigned char)~(0x80 >> bit % 8);
    if (inet_ntop(family, bytes, text, sizeof text))
        (void)snprintf(out, size, "%s/%d", text, address->prefix);
}

static void take_interface(const struct description *machine, struct node_facts *facts)
{
    const struct description_interface *interface = decide_interface(machine);
    const int wanted = strchr(machine->master_address, ':') ? 6 : 4;
    const struct description_address *chosen = NULL;
    if (!interface)
        return;
    (void)snprintf(facts->interface, sizeof facts->interface, "%s", interface->name);
    facts->mtu = interface->loopback ? 0 : interface->mtu;
    for (int i = 0; i < interface->address_count; i++) {
        const struct description_address *address = &interface->addresses[i];
        if (address->scope != DESCRIPTION_LINK_LOCAL &&
            (!chosen || (chosen->family != wanted && address->family == wanted)))
            chosen = address;
    }
    if (!chosen)
        return;
    (void)snprintf(facts->address, sizeof facts->address, "%s", chosen->text);
    facts->family = chosen->family;
    if (!machine->kubernetes) /* where every node has a network for its pods, with routes to the others' */
        write_network(chosen, facts->network, sizeof facts->network);
}

void node_facts_take(const struct description *machine, const char *host, struct node_facts *facts)
{
    *facts = (struct node_facts){.rdma = -1, .gpus = -1};
    (void)snprintf(facts->host, sizeof facts->host, "%s", host);
    memcpy(facts->nccl, machine->nccl, sizeof facts->nccl);
    memcpy(facts->driver, machine->driver, sizeof facts->driver);
    memcpy(facts->cuda, machine->cuda_driver, sizeof facts->cuda);
    take_interface(machine, facts);
    if (machine->nvml == DESCRIPTION_YES || machine->gpu_count > 0)
        facts->gpus = machine->gpu_count;
    else if (machine->nvml == DESCRIPTION_NO)
        facts->gpus = machine->device_files;
    if (machine->gpu_count > 0)
        memcpy(facts->model, machine->gpus[0].name, sizeof facts->model);
    if (facts->gpus <= 0)
        return;
    facts->rdma = 0;
    for (int i = 0; i < machine->rdma_count; i++)
        facts->rdma += machine->rdma[i].uverbs && !strcmp(machine->rdma[i].state, "ACTIVE");
}

/* --- as text --- */

struct member {
    const char *name;
    size_t offset, size; /* size 0: an int */
    int unknown;
};

#define TEXT(member_)                                                                                        \
    {                                                                                                        \
#member_, offsetof(struct node_facts, member_), sizeof((struct node_facts *)0)->member_, 0           \
    }
#define NUMBER(member_, none)                                                                                \
    {                                                                                                        \
#member_, offsetof(struct node_facts, member_), 0, none                                              \
    }

static const struct member members[] = {
    TEXT(host),    TEXT(nccl),  TEXT(driver),      TEXT(cuda),     TEXT(interface),  TEXT(address),
    TEXT(network), TEXT(model), NUMBER(family, 0), NUMBER(mtu, 0), NUMBER(rdma, -1), NUMBER(gpus, -1),
};
enum { MEMBERS = sizeof members / sizeof *members };

int node_facts_write(const struct node_facts *facts, struct buffer *out)
{
    for (int i = 0; i < MEMBERS; i++) {
        const void *at = (const char *)facts + members[i].offset;
        if (members[i].size && *(const char *)at)
            buffer_printf(out, "%s=%s\n", members[i].name, (const char *)at);
        else if (!members[i].size && *(const int *)at != members[i].unknown)
            buffer_printf(out, "%s=%d\n", members[i].name, *(const int *)at);
    }
    return out->failed ? -1 : 0;
}

static int set_member(const struct member *member, const char *value, size_t length, struct node_facts *facts,
                      struct muster_error *err)
{
    void *at = (char *)facts + member->offset;
    char number[16];
    int64_t parsed;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)value[i] < ' ')
            return error_set(err, MUSTER_E_INVALID, "node facts: %s has a control character", member->name);
    if (member->size && length < member->size) {
        memcpy(at, value, length);
        ((char *)at)[length] = 0;
        return 0;
    }
    (void)snprintf(number, sizeof number, "%.*s", (int)(length < sizeof number ? length : 0), value);
    if (member->size || !text_int64(number, &parsed) || parsed < -1 || parsed > 1 << 24)
        return error_set(err, MUSTER_E_INVALID, "node facts: %s is too long, or no number", member->name);
    *(int *)at = (int)parsed;
    return 0;
}

int node_facts_read(const char *text, size_t length, struct node_facts *facts, struct muster_error *err)
{
    *facts = (struct node_facts){.rdma = -1, .gpus = -1};
    if (length > NODE_FACTS_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "node facts: %zu bytes; at most %d are read", length,
                         NODE_FACTS_LIMIT);
    for (const char *at = text, *end = text + length; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((stop ? stop : end) - at);
        const char *equals = memchr(at, '=', line);
        if (!equals)
            return error_set(err, MUSTER_E_INVALID, "node facts: a line without =");
        size_t name = (size_t)(equals - at);
        for (int i = 0; i < MEMBERS; i++)
            if (strlen(members[i].name) == name && !strncmp(members[i].name, at, name) &&
                set_member(&members[i], equals + 1, line - name - 1, facts, err) < 0)
                return -1;
        at += line + 1;
    }
    if (!*facts->host)
        return error_set(err, MUSTER_E_INVALID, "node facts: no host");
    return 0;
}

/* --- facts of all nodes --- */

enum { VALUE = DESCRIPTION_NAME + 32 };

/* The compared value, as displayed; "" if the node does not report it. */
typedef void value_of(const struct node_facts *facts, char value[VALUE]);

static void nccl(const struct node_facts *facts, char value[VALUE])
{
    (void)snprintf(value, VALUE, "%s", facts->nccl);
}

static void driver(const struct node_facts *facts, char value[VALUE])
{
    (void)snprintf(value, VALUE, "%s", facts->driver);
}

static void cuda(const struct node_facts *facts, char value[VALUE])
{
    (void)snprintf(value, VALUE, "%s", facts->cuda);
}

static void model(const struct node_facts *facts, char value[VALUE])
{
    (void)snprintf(value, VALUE, "%s", facts->model);
}

static void gpus(const struct node_facts *facts, char value[VALUE])
{
    if (facts->gpus >= 0)
        (void)snprintf(value, VALUE, "%d", facts->gpus);
}

static void rdma(const struct node_facts *facts, char value[VALUE])
{
    if (facts->rdma >= 0)
        (void)snprintf(value, VALUE, "%s", facts->rdma ? "ready" : "missing");
}

static void family(const struct node_facts *facts, char value[VALUE])
{
    if (facts->family)
        (void)snprintf(value, VALUE, "IPv%d", facts->family);
}

static void network(const struct node_facts *facts, char value[VALUE])
{
    (void)snprintf(value, VALUE, "%s", facts->network);
}

static void mtu(const struct node_facts *facts, char value[VALUE])
{
    if (facts->mtu)
        (void)snprintf(value, VALUE, "%d (%s)", facts->mtu, facts->interface);
}

/* For MTU only the number counts, interfaces may have different names. */
static bool equal(const char *a, const char *b)
{
    size_t length = strcspn(a, "(");
    return length == strcspn(b, "(") && !strncmp(a, b, length) && (a[length] == '(' || !strcmp(a, b));
}

static const struct topic {
    const char *name;
    value_of *value;
    const char *follows;
} topics[] = {
    {"NCCL", nccl, "ranks of different versions fail or hang when they connect; use one image"},
    {"driver", driver, "a setting that works on one node may fail on the other"},
    {"CUDA of the driver", cuda, "a program built for the newer one fails on the older"},
    {"GPUs", gpus, "every node should start as many workers; run muster doctor on a node with too few"},
    {"GPU model", model,
     "the slowest sets the pace, and a model that fits into one may not fit into the other"},
    {"RDMA", rdma, "the nodes have no network in common, so the job fails or falls back to TCP"},
    {"address family", family, "ranks with different families cannot connect: set NCCL_SOCKET_FAMILY"},
    {"network", network, "the interfaces may not reach each other"},
    {"MTU", mtu, "large messages between them may be dropped, and the job hangs"},
};

static void list_hosts(const struct topic *topic, const struct node_facts *nodes, int count,
                       const char *value, struct buffer *out)
{
    enum { SHOWN = 8 };
    int found = 0;
    for (int i = 0; i < count; i++) {
        char own[VALUE] = "";
        if (*nodes[i].host)
            topic->value(&nodes[i], own);
        if (*own && equal(own, value) && found++ < SHOWN)
            buffer_printf(out, "%s%s", found == 1 ? "" : ", ", nodes[i].host);
    }
    if (found > SHOWN)
        buffer_printf(out, " and %d more", found - SHOWN);
}

/* Whether an earlier node has the same value, or this one has none. */
static bool is_old(const struct topic *topic, const struct node_facts *nodes, int at, const char *value)
{
    bool old = !*value;
    for (int i = 0; i < at && !old; i++) {
        char other[VALUE] = "";
        if (*nodes[i].host)
            topic->value(&nodes[i], other);
        old = *other && equal(other, value);
    }
    return old;
}

static void compare_topic(const struct topic *topic, const struct node_facts *nodes, int count,
                          struct buffer *out)
{
    scope_buffer line = {0};
    int values = 0;
    for (int i = 0; i < count; i++) {
        char value[VALUE] = "";
        if (*nodes[i].host)
            topic->value(&nodes[i], value);
        if (is_old(topic, nodes, i, value))
            continue;
        buffer_printf(&line, "%s%s on ", values++ ? "; " : "", value);
        list_hosts(topic, nodes, count, value, &line);
    }
    if (line.failed)
        out->failed = true;
    else if (values > 1)
        buffer_printf(out, "%s %s: %s\n", topic->name, line.data, topic->follows);
}

int node_facts_compare(const struct node_facts *nodes, int count, struct buffer *out)
{
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        compare_topic(&topics[i], nodes, count, out);
    return out->failed ? -1 : 0;
}
