/* store_blocks.c - the memory of a store's values: references, and the client charged for a value that is no
 * longer stored but still read.
 *
 * The store, an unfinished request and unread replies share one block. A byte is charged once: to the value's
 * writer while it is stored, then to a reader. */
#include "rendezvous/store/store_internal.h"

#include <assert.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

struct store_block *store_block_create(size_t capacity)
{
    struct store_block *block = mem_realloc(NULL, 1, sizeof *block + capacity);
    if (block)
        *block = (struct store_block){.references = 1, .capacity = capacity};
    return block;
}

struct store_block *store_block_resize(struct store_block *block, size_t capacity)
{
    assert(block->references == 1 && !block->holds);
    struct store_block *moved = mem_realloc(block, 1, sizeof *moved + capacity);
    if (moved)
        moved->capacity = capacity;
    return moved;
}

char *store_block_data(struct store_block *block)
{
    return block->data;
}

size_t store_block_capacity(const struct store_block *block)
{
    return block->capacity;
}

void store_block_release(struct store_block *block)
{
    if (block && !--block->references)
        mem_free(block);
}

int store_block_of(const struct store_request *r, size_t index, struct store_bytes value,
                   struct store_bytes key, const char *what, struct store_block **block,
                   struct muster_error *err)
{
    *block = NULL;
    if (!value.length)
        return 0;
    struct store_block *own = r->blocks ? r->blocks[index] : NULL;
    if (own && !own->stored) {
        assert(own->capacity == value.length);
        own->references++;
        *block = own;
        return 0;
    }
    *block = store_block_create(value.length);
    if (!*block)
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory for a value of %zu bytes of key \"%s\"", what,
                         value.length, store_key_text(key).text);
    memcpy((*block)->data, value.data, value.length);
    return 0;
}

void store_block_enter(struct store_block *block)
{
    if (block)
        block->stored = 1;
}

static void charge_reader(struct store *s, struct store_block *block)
{
    block->payer = block->holds;
    if (block->payer)
        store_charge(s, block->payer->owner, block->capacity);
}

void store_block_leave(struct store *s, struct store_block *block)
{
    if (!block)
        return;
    block->stored = 0;
    charge_reader(s, block);
    store_block_release(block);
}

void store_hold(struct store *s, struct store_hold *hold, const void *data, struct store_owner *owner)
{
    struct store_block *block = (struct store_block *)((char *)data - offsetof(struct store_block, data));
    *hold = (struct store_hold){.block = block, .owner = owner, .next = block->holds, .at = &block->holds};
    if (hold->next)
        hold->next->at = &hold->next;
    block->holds = hold;
    block->references++;
    s->holds++;
    if (!block->stored && !block->payer)
        charge_reader(s, block);
}

void store_hold_end(struct store *s, struct store_hold *hold)
{
    struct store_block *block = hold->block;
    *hold->at = hold->next;
    if (hold->next)
        hold->next->at = hold->at;
    if (block->payer == hold) {
        charge_reader(s, block);
        store_discharge(s, hold->owner, block->capacity);
    }
    s->holds--;
    store_block_release(block);
}
