/* store_owners.c - accounts: each byte of a store is charged to the client that wrote it, and can be taken
 * away again.
 *
 * PyTorch's protocol knows no users: any peer may fill the store. The accounts show which one does. */
#include "rendezvous/store/store_internal.h"

#include <assert.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

struct store_owner *store_owner_create(struct store *s, struct muster_error *err)
{
    struct store_owner *owner = mem_calloc(1, sizeof *owner);
    if (!owner) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a client of the store");
        return NULL;
    }
    store_link_append(&s->owners, &owner->link);
    return owner;
}

static void owner_settle(struct store_owner *owner)
{
    if (!owner->left || owner->bytes)
        return;
    store_link_remove(&owner->link);
    mem_free(owner);
}

void store_owner_leave(struct store *s, struct store_owner *owner)
{
    (void)s;
    if (!owner)
        return;
    owner->left = true;
    owner_settle(owner);
}

size_t store_owner_bytes(const struct store_owner *owner)
{
    return owner->bytes;
}

void store_charge(struct store *s, struct store_owner *owner, size_t more)
{
    s->bytes += more;
    if (owner)
        owner->bytes += more;
}

void store_discharge(struct store *s, struct store_owner *owner, size_t less)
{
    assert(s->bytes >= less);
    s->bytes -= less;
    if (!owner)
        return;
    assert(owner->bytes >= less);
    owner->bytes -= less;
    owner_settle(owner);
}

static void give_to(struct store *s, struct store_name *name, struct store_owner *owner)
{
    const size_t bytes = store_name_cost(name->key_length) + store_name_capacity(name);
    struct store_owner *before = name->owner;
    if (before == owner)
        return;
    name->owner = owner;
    store_charge(s, owner, bytes);
    store_discharge(s, before, bytes);
}

void store_name_claim(struct store *s, struct store_name *name)
{
    give_to(s, name, s->writer);
}

struct store_owner *store_largest_left(const struct store *s)
{
    struct store_owner *largest = NULL;
    for (struct store_link *at = s->owners.next; at != &s->owners; at = at->next) {
        struct store_owner *owner = (struct store_owner *)at; /* link is its first member */
        if (owner->left && (!largest || owner->bytes > largest->bytes))
            largest = owner;
    }
    return largest;
}

/* The items of others keep their order. */
static void drop_items(struct store *s, struct store_name *name, const struct store_owner *owner)
{
    struct store_item **at = &name->first;
    name->last = NULL;
    while (*at) {
        struct store_item *item = *at;
        if (item->owner != owner) {
            name->last = item;
            at = &item->next;
            continue;
        }
        *at = item->next;
        name->queued--;
        store_discharge(s, item->owner, sizeof *item + item->length);
        store_block_leave(s, item->block);
        mem_free(item);
    }
}

void store_forfeit(struct store *s, struct store_owner *owner)
{
    const bool left = owner->left;
    owner->left = false; /* it must not go while its account is being emptied */
    for (size_t i = 0; i <= s->names.mask; i++) {
        for (struct store_node *node = s->names.buckets[i], *next; node; node = next) {
            struct store_name *name = (struct store_name *)node;
            next = node->next;
            drop_items(s, name, owner);
            if (name->owner == owner) {
                if (name->present)
                    store_name_drop_value(s, name);
                give_to(s, name, NULL); /* if others wait for it it stays */
            }
            store_name_settle(s, name);
        }
    }
    owner->left = left;
    owner_settle(owner);
}

void store_set_total(struct store *s, size_t total_bytes)
{
    s->limits.total_bytes = total_bytes;
}
