/* store_values.c - operations of a store on the values of names: set, get, compare_set, add, append and those
 * of several keys.
 *
 * Each operation first completes every step that may fail (limits, memory), then changes the store. */
#include "rendezvous/store/store_internal.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

static struct store_bytes store_name_value(const struct store_name *name)
{
    return name && name->present && name->value ? (struct store_bytes){name->value->data, name->value_length}
                                                : (struct store_bytes){NULL, 0};
}

static bool bytes_equal(struct store_bytes a, struct store_bytes b)
{
    return a.length == b.length && (!a.length || !memcmp(a.data, b.data, a.length));
}

/* The block that can become the value of key; NULL for an empty value. */
static int store_value_of(const struct store *s, const struct store_request *r, size_t index,
                          struct store_bytes key, struct store_bytes value, const char *what,
                          struct store_block **block, struct muster_error *err)
{
    if (value.length > s->limits.value_bytes)
        return error_set(err, MUSTER_E_LIMIT,
                         "%s: the value of key \"%s\" has %zu bytes, at most %zu are allowed", what,
                         store_key_text(key).text, value.length, s->limits.value_bytes);
    return store_block_of(r, index, value, key, what, block, err);
}

static int set_value(struct store *s, const struct store_request *r, const char *what,
                     struct muster_error *err)
{
    const struct store_bytes key = r->key, value = r->value;
    struct store_name *name = store_name_find(s, key);
    if (name && store_name_keeps_block(name, value.length)) {
        store_name_rewrite_value(s, name, value);
        store_waits_count(s, &name->waits, false);
        return 0;
    }
    GUARD(guard_store_block) struct store_block *block = NULL;
    if (store_value_of(s, r, 0, key, value, what, &block, err))
        return -1;
    if (!name)
        name = store_name_obtain(s, key, what, err);
    if (!name)
        return -1;
    /* What readers hold of the present value stays. */
    if (store_budget(s, value.length, store_block_shared(name->value) ? 0 : store_name_capacity(name), what,
                     key, err)) {
        store_name_settle(s, name);
        return -1;
    }
    store_name_take_value(s, name, take_pointer(&block), value.length);
    store_waits_count(s, &name->waits, false);
    return 0;
}

int store_step_set(struct store *s, const struct store_request *r, struct store_answer *a,
                   struct muster_error *err)
{
    (void)a;
    return set_value(s, r, "set", err);
}

/* One key of a MULTI_SET, ready to be stored. */
struct prepared {
    struct store_name *name;
    bool fresh; /* created for this request; a name listed twice is fresh once */
    bool keeps; /* its block is reused; no other value of this request makes that block smaller */
    struct store_block *block;
};

static int prepare(struct store *s, struct prepared *p, const struct store_request *r, size_t index,
                   size_t pending, struct muster_error *err)
{
    const struct store_bytes key = r->keys[index], value = r->values[index];
    GUARD(guard_store_block) struct store_block *block = NULL;
    p->name = store_name_find(s, key);
    p->keeps = p->name && store_name_keeps_block(p->name, value.length);
    if (p->keeps)
        return 0;
    if (store_value_of(s, r, index, key, value, "multi_set", &block, err))
        return -1;
    p->fresh = !p->name;
    if (p->fresh && !(p->name = store_name_obtain(s, key, "multi_set", err)))
        return -1;
    if (store_budget(s, pending + value.length, 0, "multi_set", key, err)) {
        if (p->fresh)
            store_name_settle(s, p->name);
        return -1;
    }
    p->block = take_pointer(&block);
    return 0;
}

int store_step_multi_set(struct store *s, const struct store_request *r, struct store_answer *a,
                         struct muster_error *err)
{
    (void)a;
    scope_free struct prepared *all = mem_calloc(r->count, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "multi_set: no memory for %zu keys", r->count);
    size_t done = 0, pending = 0; /* replaced values are not credited: a name may be listed twice */
    for (; done < r->count && !prepare(s, &all[done], r, done, pending, err); done++)
        pending += all[done].keeps ? 0 : r->values[done].length;
    bool whole = done == r->count;
    for (size_t i = 0; i < done; i++) {
        if (whole) {
            if (all[i].keeps)
                store_name_rewrite_value(s, all[i].name, r->values[i]);
            else
                store_name_take_value(s, all[i].name, all[i].block, r->values[i].length);
            store_waits_count(s, &all[i].name->waits, false);
        } else {
            store_block_release(all[i].block);
            if (all[i].fresh)
                store_name_settle(s, all[i].name);
        }
    }
    return whole ? 0 : -1;
}

int store_step_get(struct store *s, const struct store_request *r, struct store_answer *a,
                   struct muster_error *err)
{
    (void)err;
    const struct store_name *name = store_name_find(s, r->key);
    a->found = name && name->present;
    a->value = store_name_value(name);
    return 0;
}

int store_step_compare_set(struct store *s, const struct store_request *r, struct store_answer *a,
                           struct muster_error *err)
{
    const struct store_name *name = store_name_find(s, r->key);
    if (name && !name->present)
        name = NULL;
    if (name ? !bytes_equal(store_name_value(name), r->expected) : r->expected.length > 0) {
        a->found = name != NULL;
        a->value = name ? store_name_value(name) : r->expected;
        return 0;
    }
    if (set_value(s, r, "compare_set", err))
        return -1;
    a->found = true;
    a->value = r->value;
    return 0;
}

int store_step_add(struct store *s, const struct store_request *r, struct store_answer *a,
                   struct muster_error *err)
{
    int64_t old = 0;
    struct store_name *name = store_name_find(s, r->key);
    if (store_name_read_number(name, "add", &old, err))
        return -1;
    (void)__builtin_add_overflow(old, r->number, &a->number); /* wraps, as PyTorch's server does */
    if (!name && !(name = store_name_obtain(s, r->key, "add", err)))
        return -1;
    if (store_name_reserve_value(s, name, STORE_NUMBER_LENGTH, "add", err)) {
        store_name_settle(s, name);
        return -1;
    }
    store_name_write_number(s, name, a->number);
    store_waits_count(s, &name->waits, false);
    return 0;
}

int store_step_append(struct store *s, const struct store_request *r, struct store_answer *a,
                      struct muster_error *err)
{
    (void)a;
    struct store_name *name = store_name_obtain(s, r->key, "append", err);
    if (!name)
        return -1;
    size_t length = name->value_length;
    store_name_claim(s,
                     name); /* also where it fails: the value is as large as its last writer could have it */
    if (store_name_reserve_value(s, name, length + r->value.length, "append", err)) {
        store_name_settle(s, name);
        return -1;
    }
    if (r->value.length)
        memcpy(name->value->data + length, r->value.data, r->value.length);
    name->value_length = length + r->value.length;
    s->present += !name->present;
    name->present = true;
    store_waits_count(s, &name->waits, false);
    return 0;
}

int store_step_multi_get(struct store *s, const struct store_request *r, struct store_answer *a,
                         struct muster_error *err)
{
    if (store_list_reserve(s, r->count, "multi_get", err))
        return -1;
    for (size_t i = 0; i < r->count; i++)
        s->list[i] = store_name_value(store_name_find(s, r->keys[i]));
    a->list = s->list;
    a->count = r->count;
    return 0;
}
