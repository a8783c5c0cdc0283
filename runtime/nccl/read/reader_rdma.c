/* reader_rdma.c - RDMA devices, their ports and GIDs, from /sys/class/infiniband. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "runtime/nccl/read/reader_internal.h"

struct port {
    struct description_rdma *rdma;
    char directory[READER_PATH / 2];
};

/* "4: ACTIVE" -> "ACTIVE" */
static void read_state(struct reader *r, char *out, size_t size, const char *directory, const char *file)
{
    char line[DESCRIPTION_NAME];
    *out = 0;
    if (!reader_line(r, line, sizeof line, "%s/%s", directory, file))
        return;
    const char *colon = strchr(line, ':');
    reader_set(out, size, colon ? colon + 1 + strspn(colon + 1, " ") : line);
}

/* An all-zero GID is an unused entry. */
static bool is_empty(const char *gid)
{
    return strspn(gid, "0:") == strlen(gid);
}

static void add_gid(struct reader *r, const char *name, void *context)
{
    struct port *port = context;
    char text[DESCRIPTION_NAME], type[DESCRIPTION_NAME];
    if (!reader_line(r, text, sizeof text, "%s/gids/%s", port->directory, name) || is_empty(text))
        return;
    struct description_gid *gid = reader_grow(r, &port->rdma->gids, &port->rdma->gid_count, sizeof *gid);
    if (!gid)
        return;
    gid->index = (int)strtol(name, NULL, 10);
    READER_SET(gid->text, text);
    gid->ipv4 = !strncmp(text, "0000:0000:0000:0000:0000:ffff:", 30);
    gid->link_local = !strncmp(text, "fe80:", 5);
    (void)reader_line(r, gid->interface, sizeof gid->interface, "%s/gid_attrs/ndevs/%s", port->directory,
                      name);
    (void)reader_line(r, type, sizeof type, "%s/gid_attrs/types/%s", port->directory,
                      name); /* containers may not read it */
    gid->type = !strcmp(type, "RoCE v2") ? DESCRIPTION_GID_ROCE_V2
                : !strcmp(type, "IB/RoCE v1")
                    ? (port->rdma->ethernet ? DESCRIPTION_GID_ROCE_V1 : DESCRIPTION_GID_IB)
                    : DESCRIPTION_GID_UNKNOWN;
}

static void first_name(struct reader *r, const char *name, void *context)
{
    (void)r;
    char *out = context;
    if (!*out)
        reader_set(out, DESCRIPTION_NAME, name);
}

/* NCCL opens a device's verbs to read and write. In a pod without the RDMA resource /sys shows devices that
 * /dev lacks, or that the container's group of devices refuses (EPERM). */
static void read_verbs(struct reader *r, const char *device, struct description_rdma *rdma)
{
    char directory[READER_PATH / 2], verbs[DESCRIPTION_NAME] = "", path[READER_PATH];
    (void)snprintf(directory, sizeof directory, "/sys/class/infiniband/%s/device/infiniband_verbs", device);
    reader_each(r, directory, first_name, verbs);
    if (!*verbs || !reader_path(r, path, "/dev/infiniband/%s", verbs))
        return;
    rdma->uverbs = access(path, R_OK | W_OK) == 0;
    rdma->uverbs_refused = !rdma->uverbs && errno == EACCES;
}

static void add_port(struct reader *r, const char *name, void *context)
{
    const char *device = context;
    char line[DESCRIPTION_NAME], nets[READER_PATH];
    struct port port = {0};
    struct description_rdma *rdma = reader_grow(r, &r->out->rdma, &r->out->rdma_count, sizeof *rdma);
    if (!rdma)
        return;
    port.rdma = rdma;
    (void)snprintf(port.directory, sizeof port.directory, "/sys/class/infiniband/%s/ports/%s", device, name);
    READER_SET(rdma->device, device);
    rdma->port = (int)strtol(name, NULL, 10);
    read_state(r, rdma->state, sizeof rdma->state, port.directory, "state");
    read_state(r, rdma->phys_state, sizeof rdma->phys_state, port.directory, "phys_state");
    rdma->ethernet =
        reader_line(r, line, sizeof line, "%s/link_layer", port.directory) && !strcmp(line, "Ethernet");
    if (reader_line(r, line, sizeof line, "%s/rate", port.directory))
        rdma->rate_gbit = strtod(line, NULL);
    rdma->link_downed = reader_number(r, -1, "%s/counters/link_downed", port.directory);
    rdma->symbol_errors = reader_number(r, -1, "%s/counters/symbol_error", port.directory);
    (void)reader_line(r, rdma->vendor, sizeof rdma->vendor, "/sys/class/infiniband/%s/device/vendor", device);
    (void)reader_link(r, rdma->pci, sizeof rdma->pci, "/sys/class/infiniband/%s/device", device);
    rdma->numa_node = (int)reader_number(r, -1, "/sys/class/infiniband/%s/device/numa_node", device);
    read_verbs(r, device, rdma);
    (void)snprintf(nets, sizeof nets, "/sys/class/infiniband/%s/device/net", device);
    reader_each(r, nets, first_name, rdma->interface);
    (void)snprintf(nets, sizeof nets, "%s/gids", port.directory);
    reader_each(r, nets, add_gid, &port);
}

static void add_device(struct reader *r, const char *name, void *context)
{
    char directory[READER_PATH / 2], device[DESCRIPTION_NAME];
    (void)context;
    reader_set(device, sizeof device, name);
    (void)snprintf(directory, sizeof directory, "/sys/class/infiniband/%s/ports", device);
    reader_each(r, directory, add_port, device);
}

void reader_rdma(struct reader *r)
{
    reader_each(r, "/sys/class/infiniband", add_device, NULL);
}
