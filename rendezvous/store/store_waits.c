/* store_waits.c - parked clients of a store: waits by name, released clients, and the operations on waits. */
#include "rendezvous/store/store_internal.h"

#include <assert.h>
#include <inttypes.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

static uint64_t client_hash(uint64_t client)
{
    return store_hash_word(0, (const char *)&client, sizeof client);
}

static size_t store_wait_cost(size_t entry_count)
{
    return sizeof(struct store_wait) + entry_count * sizeof(struct store_wait_entry);
}

struct store_wait *store_wait_find(const struct store *s, uint64_t client)
{
    uint64_t hash = client_hash(client);
    for (struct store_node *node = s->waits.buckets[hash & s->waits.mask]; node; node = node->next) {
        struct store_wait *wait = (struct store_wait *)node;
        if (wait->client == client)
            return wait;
    }
    return NULL;
}

struct store_wait *store_wait_create(struct store *s, uint64_t client, size_t entry_count, const char *what,
                                     struct store_bytes key, struct muster_error *err)
{
    if (store_wait_find(s, client)) {
        error_set(err, MUSTER_E_STATE,
                  "%s of key \"%s\": client %" PRIu64 " waits already; a client may have one wait at a time",
                  what, store_key_text(key).text, client);
        return NULL;
    }
    if (store_budget(s, store_wait_cost(entry_count), 0, what, key, err))
        return NULL;
    struct store_wait *wait = mem_calloc(1, store_wait_cost(entry_count));
    if (!wait) {
        error_set(err, MUSTER_E_NOMEM, "%s: no memory to wait for key \"%s\" and %zu more", what,
                  store_key_text(key).text, entry_count - 1);
        return NULL;
    }
    wait->client = client;
    wait->entry_count = entry_count;
    store_link_init(&wait->queued);
    for (size_t i = 0; i < entry_count; i++) {
        wait->entries[i].wait = wait;
        store_link_init(&wait->entries[i].link);
    }
    store_table_insert(&s->waits, &wait->node, client_hash(client));
    wait->owner = s->writer;
    store_charge(s, wait->owner, store_wait_cost(entry_count));
    return wait;
}

void store_wait_add_entry(struct store_wait *wait, size_t entry, struct store_name *name,
                          struct store_link *list)
{
    wait->entries[entry].name = name;
    store_link_append(list, &wait->entries[entry].link);
    wait->missing++;
}

static void store_wait_remove_entries(struct store *s, struct store_wait *wait)
{
    for (size_t i = 0; i < wait->entry_count; i++) {
        struct store_name *name = wait->entries[i].name;
        if (!name)
            continue;
        wait->entries[i].name = NULL;
        store_link_remove(&wait->entries[i].link);
        store_name_settle(s, name);
    }
}

void store_wait_drop(struct store *s, struct store_wait *wait)
{
    store_wait_remove_entries(s, wait);
    store_link_remove(&wait->queued);
    store_table_remove(&s->waits, &wait->node);
    store_discharge(s, wait->owner, store_wait_cost(wait->entry_count));
    mem_free(wait);
}

static void store_wait_release(struct store *s, struct store_wait *wait, enum store_wake_reason reason)
{
    assert(!wait->released); /* once each */
    wait->released = true;
    wait->reason = reason;
    store_link_append(&s->released, &wait->queued);
}

void store_waits_count(struct store *s, struct store_link *list, bool one)
{
    while (!store_link_empty(list)) {
        struct store_wait_entry *entry = (struct store_wait_entry *)list->next; /* link is its first member */
        store_link_remove(&entry->link);
        entry->name = NULL;
        if (--entry->wait->missing == 0)
            store_wait_release(s, entry->wait, STORE_WAKE_READY);
        if (one)
            return;
    }
}

void store_waits_release_all(struct store *s, enum store_wake_reason reason)
{
    for (size_t i = 0; i <= s->waits.mask; i++) {
        for (struct store_node *node = s->waits.buckets[i]; node; node = node->next) {
            struct store_wait *wait = (struct store_wait *)node;
            if (!wait->released) {
                store_wait_remove_entries(s, wait);
                store_wait_release(s, wait, reason);
            }
        }
    }
}

bool store_next_wake(struct store *s, struct store_wake *wake)
{
    if (store_link_empty(&s->released))
        return false;
    struct store_wait *wait =
        (struct store_wait *)((char *)s->released.next - offsetof(struct store_wait, queued));
    *wake = (struct store_wake){.client = wait->client, .reason = wait->reason};
    store_wait_drop(s, wait);
    return true;
}

/* --- operations --- */

int store_step_check(struct store *s, const struct store_request *r, struct store_answer *a,
                     struct muster_error *err)
{
    (void)err;
    a->found = true;
    for (size_t i = 0; i < r->count && a->found; i++)
        a->found = store_name_satisfies(store_name_find(s, r->keys[i]));
    return 0;
}

int store_step_wait(struct store *s, const struct store_request *r, struct store_answer *a,
                    struct muster_error *err)
{
    size_t missing = 0, first = 0;
    for (size_t i = r->count; i-- > 0;) {
        if (!store_name_satisfies(store_name_find(s, r->keys[i]))) {
            missing++;
            first = i;
        }
    }
    if (!missing)
        return 0;
    struct store_wait *wait = store_wait_create(s, r->client, missing, "wait", r->keys[first], err);
    if (!wait)
        return -1;
    size_t entry = 0;
    for (size_t i = first; i < r->count; i++) {
        struct store_name *name = store_name_obtain(s, r->keys[i], "wait", err);
        if (!name) {
            store_wait_drop(s, wait);
            return -1;
        }
        if (!store_name_satisfies(name))
            store_wait_add_entry(wait, entry++, name, &name->waits);
    }
    a->parked = true;
    return 0;
}

int store_step_barrier(struct store *s, const struct store_request *r, struct store_answer *a,
                       struct muster_error *err)
{
    int64_t arrived = 0;
    if (store_name_read_number(store_name_find(s, r->key), "barrier", &arrived, err))
        return -1;
    if (arrived == INT64_MAX)
        return error_set(err, MUSTER_E_LIMIT, "barrier: the count of key \"%s\" exceeds 64 bits",
                         store_key_text(r->key).text);
    a->number = arrived + 1;
    a->parked = r->reusable && r->number > 0 ? a->number % r->number != 0 : a->number < r->number;
    struct store_wait *wait = NULL;
    if (a->parked && !(wait = store_wait_create(s, r->client, 1, "barrier", r->key, err)))
        return -1;
    struct store_name *name = store_name_obtain(s, r->key, "barrier", err);
    if (!name || store_name_reserve_value(s, name, STORE_NUMBER_LENGTH, "barrier", err)) {
        if (wait)
            store_wait_drop(s, wait);
        if (name)
            store_name_settle(s, name);
        return -1;
    }
    store_name_write_number(s, name, a->number);
    store_waits_count(s, &name->waits, false);
    if (wait)
        store_wait_add_entry(wait, 0, name, &name->barriers);
    else
        store_waits_count(s, &name->barriers, false);
    return 0;
}

int store_step_cancel(struct store *s, const struct store_request *r, struct store_answer *a,
                      struct muster_error *err)
{
    (void)err;
    struct store_wait *wait = store_wait_find(s, r->client);
    a->found = wait != NULL;
    if (wait)
        store_wait_drop(s, wait);
    return 0;
}
