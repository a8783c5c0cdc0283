/* store_queues.c - operations of a store on the queues of names. */
#include "rendezvous/store/store_internal.h"

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

int store_step_queue_push(struct store *s, const struct store_request *r, struct store_answer *a,
                          struct muster_error *err)
{
    (void)a;
    if (r->value.length > s->limits.value_bytes)
        return error_set(err, MUSTER_E_LIMIT,
                         "queue_push: the value of key \"%s\" has %zu bytes, at most %zu are allowed",
                         store_key_text(r->key).text, r->value.length, s->limits.value_bytes);
    size_t cost = sizeof(struct store_item) + r->value.length;
    GUARD(guard_store_block) struct store_block *block = NULL;
    if (store_block_of(r, 0, r->value, r->key, "queue_push", &block, err))
        return -1;
    struct store_name *name = store_name_obtain(s, r->key, "queue_push", err);
    if (!name)
        return -1;
    struct store_item *item = NULL;
    if (!store_budget(s, cost, 0, "queue_push", r->key, err)) {
        item = mem_realloc(NULL, 1, sizeof *item);
        if (!item)
            error_set(err, MUSTER_E_NOMEM, "queue_push: no memory for %zu bytes of key \"%s\"", cost,
                      store_key_text(r->key).text);
    }
    if (!item) {
        store_name_settle(s, name);
        return -1;
    }
    item->next = NULL;
    item->owner = s->writer;
    item->length = r->value.length;
    item->block = take_pointer(&block);
    store_block_enter(item->block);
    *(name->last ? &name->last->next : &name->first) = item;
    name->last = item;
    name->queued++;
    store_charge(s, item->owner, cost);
    store_waits_count(s, &name->waits, true);
    return 0;
}

int store_step_queue_pop(struct store *s, const struct store_request *r, struct store_answer *a,
                         struct muster_error *err)
{
    (void)err;
    struct store_name *name = store_name_find(s, r->key);
    a->number = name ? name->queued : 0;
    if (!a->number)
        return 0;
    struct store_item *item = name->first;
    name->first = item->next;
    if (!name->first)
        name->last = NULL;
    name->queued--;
    s->popped = item->block; /* borrowed by the answer until the next step */
    a->found = true;
    a->value = (struct store_bytes){item->block ? item->block->data : NULL, item->length};
    if (item->block)
        item->block->stored = 0;
    store_discharge(s, item->owner, sizeof *item + item->length);
    store_name_settle(s, name);
    mem_free(item);
    return 0;
}

int store_step_queue_len(struct store *s, const struct store_request *r, struct store_answer *a,
                         struct muster_error *err)
{
    (void)err;
    const struct store_name *name = store_name_find(s, r->key);
    a->number = name ? name->queued : 0;
    return 0;
}
