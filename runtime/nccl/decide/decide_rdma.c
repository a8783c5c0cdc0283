/* decide_rdma.c - rules about RDMA ports: ports for storage, the GID that an old NCCL needs, and reasons
 * for a fallback to TCP. */
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "runtime/nccl/decide/decide_internal.h"

static int usable_ports(const struct decider *d)
{
    int count = 0;
    for (int i = 0; i < d->machine->rdma_count; i++)
        count += decide_is_usable(&d->machine->rdma[i]);
    return count;
}

static double best_rate(const struct decider *d)
{
    double best = 0;
    for (int i = 0; i < d->machine->rdma_count; i++)
        if (decide_is_usable(&d->machine->rdma[i]) && d->machine->rdma[i].rate_gbit > best)
            best = d->machine->rdma[i].rate_gbit;
    return best;
}

static bool has_infiniband(const struct decider *d)
{
    for (int i = 0; i < d->machine->rdma_count; i++)
        if (decide_is_usable(&d->machine->rdma[i]) && !d->machine->rdma[i].ethernet)
            return true;
    return false;
}

/* Why a usable port is not for NCCL; NULL if it is. */
static const char *why_not(const struct decider *d, const struct description_rdma *port)
{
    if (port->ethernet && has_infiniband(d))
        return "is Ethernet beside InfiniBand";
    if (port->rate_gbit > 0 && port->rate_gbit < best_rate(d) / 2)
        return "is slower than half of the others";
    return NULL;
}

/* NCCL uses every ACTIVE port. A port of another kind or with less than half the rate is for storage or the
 * host. */
static void ib_hca(struct decider *d)
{
    char value[256] = "^=", reason[128] = "";
    int excluded = 0, usable = usable_ports(d);
    if (!decide_has_gpus(d) || !decide_many_nodes(d) || decide_has_profile(d) || usable < 2)
        return;
    for (int i = 0; i < d->machine->rdma_count; i++) {
        const struct description_rdma *port = &d->machine->rdma[i];
        const char *why = decide_is_usable(port) ? why_not(d, port) : NULL;
        if (!why)
            continue;
        if (!text_append(value, sizeof value, "%s%s", excluded ? "," : "", port->device))
            return;
        if (!excluded++)
            (void)snprintf(reason, sizeof reason, "%s %s (%.0f Gbit/s of %.0f)", port->device, why,
                           port->rate_gbit, best_rate(d));
    }
    if (excluded > 0 && excluded < usable)
        decide_set(d, "NCCL_IB_HCA", value, "%s: storage or host traffic, not for NCCL", reason);
}

/* The index of a routable RoCE v2 GID with an IPv4 address; -1 where there is none. */
static int routable_gid(const struct description_rdma *port)
{
    for (int i = 0; i < port->gid_count; i++)
        if (port->gids[i].type == DESCRIPTION_GID_ROCE_V2 && port->gids[i].ipv4 && !port->gids[i].link_local)
            return port->gids[i].index;
    return -1;
}

static void ib_gid_index(struct decider *d)
{
    int index = -1;
    if (!decide_has_gpus(d) || !decide_many_nodes(d) || decide_has_profile(d) || d->version == 0 ||
        d->version >= 22100)
        return; /* since 2.21 NCCL finds it by itself */
    for (int i = 0; i < d->machine->rdma_count; i++) {
        const struct description_rdma *port = &d->machine->rdma[i];
        if (!decide_is_usable(port) || !port->ethernet || why_not(d, port))
            continue;
        int found = routable_gid(port);
        if (index >= 0 && found != index) {
            decide_warn(d, "NCCL_IB_GID_INDEX", decide_user(d, "NCCL_IB_GID_INDEX"),
                        "NCCL %s uses one GID index for all ports, but RoCE v2 is at %d and at %d (%s): use "
                        "NCCL 2.21 or later",
                        d->machine->nccl, index, found, port->device);
            return;
        }
        index = found;
    }
    if (index > 0) {
        char value[16];
        (void)snprintf(value, sizeof value, "%d", index);
        decide_set(d, "NCCL_IB_GID_INDEX", value,
                   "RoCE v2 with an IPv4 address is GID %d; NCCL %s would use 0, which is not routable",
                   index, d->machine->nccl);
    }
}

/* A RoCE fabric that has only IPv6 addresses: NCCL looks for IPv4 by default. */
static void ib_address_family(struct decider *d)
{
    int six = 0;
    if (!decide_has_gpus(d) || !decide_many_nodes(d) || decide_has_profile(d) || d->version < 22100)
        return;
    for (int i = 0; i < d->machine->rdma_count; i++) {
        const struct description_rdma *port = &d->machine->rdma[i];
        if (!decide_is_usable(port) || !port->ethernet || why_not(d, port))
            continue;
        if (routable_gid(port) >= 0)
            return;
        for (int k = 0; k < port->gid_count; k++)
            six += port->gids[k].type == DESCRIPTION_GID_ROCE_V2 && !port->gids[k].link_local;
    }
    if (six > 0)
        decide_set(d, "NCCL_IB_ADDR_FAMILY", "AF_INET6",
                   "the RoCE ports have only IPv6 as routable addresses, and NCCL looks for IPv4");
}

/* --- reasons for a silent fallback to TCP, 10 to 50 times slower --- */

/* Summary of the ports; a port of another kind than the data ports does not count. */
struct ports {
    int active, down_count;
    /* An example of each; NULL: none. closed: its verbs cannot be opened; refused: for their mode. */
    const struct description_rdma *closed, *refused, *down;
};

static struct ports look_at_ports(const struct decider *d)
{
    const bool infiniband = has_infiniband(d);
    struct ports ports = {0};
    for (int i = 0; i < d->machine->rdma_count; i++) {
        const struct description_rdma *port = &d->machine->rdma[i];
        if (infiniband && port->ethernet)
            continue;
        if (!strcmp(port->state, "ACTIVE")) {
            ports.active += port->uverbs;
            ports.closed = port->uverbs ? ports.closed : port;
            ports.refused = port->uverbs_refused ? port : ports.refused;
        } else if (*port->state && !ports.down_count++) {
            ports.down = port;
        }
    }
    return ports;
}

/* A pod sees devices that other pods were given: a port without verbs means something where there is no
 * other.
 */
static void closed_verbs(struct decider *d, const struct ports *ports)
{
    if (ports->refused)
        decide_warn(d, "rdma", "",
                    "%s is ACTIVE but this user may not write to its file in /dev/infiniband, so NCCL %s: "
                    "chmod 666 /dev/infiniband/uverbs*, or make the user a member of their group",
                    ports->refused->device, ports->active ? "leaves it out" : "falls back to TCP");
    else if (ports->closed && ports->active == 0)
        decide_warn(d, "rdma", "",
                    "%s is ACTIVE but /dev/infiniband is not in this container, so NCCL falls back to TCP: "
                    "request the RDMA resource for the pod",
                    ports->closed->device);
}

static void rdma_left_unused(struct decider *d)
{
    const struct description *m = d->machine;
    char more[32] = "";
    if (!decide_has_gpus(d) || !decide_many_nodes(d) || m->rdma_count == 0)
        return;
    const struct ports ports = look_at_ports(d);
    closed_verbs(d, &ports);
    if (ports.down_count > 1)
        (void)snprintf(more, sizeof more, " and %d more", ports.down_count - 1);
    if (ports.down)
        decide_warn(d, "rdma", "", "%s port %d%s: %s (%s), so NCCL does not use it; see muster doctor",
                    ports.down->device, ports.down->port, more, ports.down->state,
                    *ports.down->phys_state ? ports.down->phys_state : "no physical state");
    if (ports.active > 0 && m->ipc_lock != DESCRIPTION_YES && m->memlock_bytes >= 0 &&
        m->memlock_bytes < (int64_t)1 << 30)
        decide_warn(d, "memlock", "",
                    "only %lld KiB of memory may be locked, and RDMA needs it unlimited: ulimit -l "
                    "unlimited, in a pod the capability IPC_LOCK",
                    (long long)(m->memlock_bytes / 1024));
    if (ports.active > 0 && decide_user_is_one(d, "NCCL_IB_DISABLE"))
        decide_warn(d, "NCCL_IB_DISABLE", decide_user(d, "NCCL_IB_DISABLE"),
                    "%d RDMA port%s ready but NCCL is set not to use %s: unset it, unless this is a test",
                    ports.active, ports.active == 1 ? " is" : "s are", ports.active == 1 ? "it" : "them");
}

/* NIC and GPU exchange data without the CPU through the module nvidia-peermem, or dma-buf of the open
 * driver. */
static void gpu_direct(struct decider *d)
{
    const struct description *m = d->machine;
    if (decide_has_gpus(d) && decide_many_nodes(d) && !decide_has_profile(d) && usable_ports(d) > 0 &&
        m->peermem == DESCRIPTION_NO && m->open_kernel_module == DESCRIPTION_NO)
        decide_warn(d, "gpu-direct", "",
                    "neither nvidia-peermem nor the open kernel modules are loaded, so RDMA passes through "
                    "the CPU's memory: modprobe nvidia-peermem on the node");
}

/* --- the user's settings --- */

static bool hca_item_matches(const char *item, size_t length, bool exact, const char *device)
{
    const char *colon = memchr(item, ':', length);
    size_t name = colon ? (size_t)(colon - item) : length;
    return !strncmp(device, item, name) && (!exact || strlen(device) == name);
}

/* Items of NCCL_IB_HCA that match no device, or a device not intended. */
static void hca_of_user(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_IB_HCA"), *at = value;
    if (!value || d->machine->rdma_count == 0)
        return;
    const bool exclude = *at == '^';
    at += exclude;
    const bool exact = *at == '=';
    at += exact;
    bool any = false;
    for (size_t length; *at; at += length + (at[length] == ',')) {
        const char *meant = NULL, *also = NULL;
        length = strcspn(at, ",");
        for (int i = 0; i < d->machine->rdma_count && length > 0; i++) {
            const char *device = d->machine->rdma[i].device;
            if (hca_item_matches(at, length, true, device))
                meant = device;
            else if (hca_item_matches(at, length, exact, device))
                also = device;
        }
        any |= meant || also;
        if (meant && also) {
            decide_warn(d, "NCCL_IB_HCA", value,
                        "%s is a prefix and matches %s too; an = in front of the list makes the names exact",
                        meant, also);
            return;
        }
    }
    if (!any && !exclude)
        decide_warn(d, "NCCL_IB_HCA", value, "no RDMA device matches (found: %s), so NCCL falls back to TCP",
                    d->machine->rdma[0].device);
}

static void gid_left_over(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_IB_GID_INDEX");
    if (value && d->version >= 22100 && strcmp(value, "-1") && d->machine->rdma_count > 0)
        decide_warn(d, "NCCL_IB_GID_INDEX", value,
                    "NCCL %s finds the GID by itself, and an index changes when a NIC is reset: unset it",
                    d->machine->nccl);
}

const struct decide_rule decide_rules_rdma[] = {
    {"ib-hca", ib_hca},
    {"ib-gid-index", ib_gid_index},
    {"ib-address-family", ib_address_family},
    {"rdma-unused", rdma_left_unused},
    {"gpu-direct", gpu_direct},
    {"hca-of-user", hca_of_user},
    {"gid-left-over", gid_left_over},
    {0},
};
