/* routes.c - see server_internal.h. */
#include "rendezvous/server/server_internal.h"

#include <assert.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

int routes_init(struct routes *routes, int slot_count, struct muster_error *err)
{
    *routes = (struct routes){.slot_count = slot_count, .bucket_count = 2 * slot_count + 1};
    routes->slots = mem_calloc((size_t)slot_count, sizeof *routes->slots);
    routes->buckets = mem_calloc(2 * (size_t)routes->bucket_count, sizeof *routes->buckets);
    if (!routes->slots || !routes->buckets) {
        routes_free(routes);
        return error_set(err, MUSTER_E_NOMEM, "no memory for the routes of %d nodes", slot_count);
    }
    routes->fd_buckets = routes->buckets + routes->bucket_count;
    for (int i = 0; i < routes->bucket_count; i++)
        routes->buckets[i] = routes->fd_buckets[i] = -1;
    return 0;
}

void routes_free(struct routes *routes)
{
    mem_free(routes->slots);
    mem_free(routes->buckets);
    *routes = (struct routes){0};
}

static int *bucket_of(const struct routes *routes, const void *id, size_t id_size)
{
    return &routes->buckets[text_hash(TEXT_HASH_START, id, id_size) % (uint64_t)routes->bucket_count];
}

/* Descriptors are small numbers close together. */
static int *fd_bucket_of(const struct routes *routes, int fd)
{
    return &routes->fd_buckets[(unsigned)fd % (unsigned)routes->bucket_count];
}

int routes_find(const struct routes *routes, const void *id, size_t id_size)
{
    for (int slot = *bucket_of(routes, id, id_size); slot >= 0; slot = routes->slots[slot].next) {
        const struct route *route = &routes->slots[slot];
        if (route->id_size == id_size && memcmp(route->id, id, id_size) == 0)
            return slot;
    }
    return -1;
}

int routes_find_fd(const struct routes *routes, int fd)
{
    int slot = fd < 0 ? -1 : *fd_bucket_of(routes, fd);
    while (slot >= 0 && routes->slots[slot].fd != fd)
        slot = routes->slots[slot].next_fd;
    return slot;
}

void routes_set(struct routes *routes, int slot, uint64_t session, const void *id, size_t id_size, int fd)
{
    assert(slot >= 0 && slot < routes->slot_count && id_size <= sizeof routes->slots[slot].id && session);
    struct route *route = &routes->slots[slot];
    routes_remove(routes, slot, route->session);
    memcpy(route->id, id, id_size);
    route->id_size = id_size;
    route->session = session;
    route->fd = fd;
    route->broken = false;
    int *bucket = bucket_of(routes, id, id_size);
    route->next = *bucket;
    *bucket = slot;
    if (fd < 0)
        return;
    bucket = fd_bucket_of(routes, fd);
    route->next_fd = *bucket;
    *bucket = slot;
}

void routes_remove(struct routes *routes, int slot, uint64_t session)
{
    struct route *route = &routes->slots[slot];
    if (!route->session || route->session != session)
        return;
    int *link = bucket_of(routes, route->id, route->id_size);
    while (*link != slot)
        link = &routes->slots[*link].next;
    *link = route->next;
    route->session = 0;
    if (route->fd < 0)
        return;
    link = fd_bucket_of(routes, route->fd);
    while (*link != slot)
        link = &routes->slots[*link].next_fd;
    *link = route->next_fd;
}
