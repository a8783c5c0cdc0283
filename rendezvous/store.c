/* store.c - see store.h: the operations. Names and values are in store_names.c, parked clients in
 * store_waits.c.
 *
 * Each operation first does all that may fail (limits, memory), then changes the store. */
#include "rendezvous/store.h"

#include <inttypes.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/store_internal.h"

/* A scratch list longer than this is given back after the request that needed it. */
enum { LIST_KEPT = 4096 };

const char *store_operation_name(int operation)
{
    static const char *const names[] = {
#define STORE_OPERATION_NAME(symbol, name) [symbol] = name,
        STORE_OPERATIONS(STORE_OPERATION_NAME)
#undef STORE_OPERATION_NAME
    };
    return operation >= 0 && operation < STORE_OPERATION_COUNT ? names[operation] : "unknown";
}

const char *store_wake_name(int reason)
{
    static const char *const names[] = {
#define STORE_WAKE_NAME(symbol, name) [symbol] = name,
        STORE_WAKES(STORE_WAKE_NAME)
#undef STORE_WAKE_NAME
    };
    return reason >= 0 && (size_t)reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}

struct store_limits store_limits_default(void)
{
    return (struct store_limits){
        .key_bytes = (size_t)8 << 10,
        .value_bytes = (size_t)8 << 20,
        .keys = (size_t)1 << 20,
        .wait_keys = (size_t)128 << 10,
        .total_bytes = (size_t)256 << 20,
    };
}

struct store *store_create(const struct store_limits *limits, struct muster_error *err)
{
    struct store *s = mem_calloc(1, sizeof *s);
    if (!s) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a store");
        return NULL;
    }
    store_link_init(&s->released);
    if (store_table_init(&s->names, err) || store_table_init(&s->waits, err)) {
        mem_free(s->names.buckets);
        mem_free(s);
        return NULL;
    }
    struct store_limits bound = store_limits_default();
    if (limits) {
        bound.key_bytes = limits->key_bytes ? limits->key_bytes : bound.key_bytes;
        bound.value_bytes = limits->value_bytes ? limits->value_bytes : bound.value_bytes;
        bound.keys = limits->keys ? limits->keys : bound.keys;
        bound.wait_keys = limits->wait_keys ? limits->wait_keys : bound.wait_keys;
        bound.total_bytes = limits->total_bytes ? limits->total_bytes : bound.total_bytes;
    }
    s->limits = bound;
    return s;
}

/* What the last answer lent to the caller. */
static void drop_loans(struct store *s)
{
    mem_free(take_pointer(&s->popped));
    if (s->list_capacity > LIST_KEPT) {
        mem_free(take_pointer(&s->list));
        s->list_capacity = 0;
    }
}

void store_destroy(struct store *s)
{
    if (!s)
        return;
    struct store_wake wake;
    store_wipe(s);
    while (store_next_wake(s, &wake))
        ;
    drop_loans(s);
    mem_free(s->list);
    mem_free(s->names.buckets);
    mem_free(s->waits.buckets);
    mem_free(s);
}

void store_wipe(struct store *s)
{
    store_waits_release_all(s, STORE_WAKE_WIPED);
    store_names_drop_all(s);
    drop_loans(s);
    s->round++;
}

struct store_limits store_limits_of(const struct store *s)
{
    return s->limits;
}

struct store_stats store_stats(const struct store *s)
{
    return (struct store_stats){.keys = s->present,
                                .names = s->names.count,
                                .bytes = s->bytes,
                                .parked = s->waits.count,
                                .round = s->round};
}

static struct store_bytes store_name_value(const struct store_name *name)
{
    return name && name->present ? (struct store_bytes){name->value, name->value_length}
                                 : (struct store_bytes){NULL, 0};
}

static bool bytes_equal(struct store_bytes a, struct store_bytes b)
{
    return a.length == b.length && (!a.length || !memcmp(a.data, b.data, a.length));
}

/* A copy of value that can become the value of key. *block is NULL for an empty one. */
static int copy_value(const struct store *s, struct store_bytes key, struct store_bytes value,
                      const char *what, char **block, struct muster_error *err)
{
    *block = NULL;
    if (value.length > s->limits.value_bytes)
        return error_set(err, MUSTER_E_LIMIT,
                         "%s: the value of key \"%s\" has %zu bytes, at most %zu are allowed", what,
                         store_key_text(key).text, value.length, s->limits.value_bytes);
    if (!value.length)
        return 0;
    *block = mem_realloc(NULL, value.length, 1);
    if (!*block)
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory for a value of %zu bytes of key \"%s\"", what,
                         value.length, store_key_text(key).text);
    memcpy(*block, value.data, value.length);
    return 0;
}

static int set_value(struct store *s, struct store_bytes key, struct store_bytes value, const char *what,
                     struct muster_error *err)
{
    struct store_name *name = store_name_find(s, key);
    if (name && store_name_keeps_block(name, value.length)) {
        store_name_rewrite_value(s, name, value);
        store_waits_count(s, &name->waits, false);
        return 0;
    }
    scope_free char *block = NULL;
    if (copy_value(s, key, value, what, &block, err))
        return -1;
    if (!name)
        name = store_name_obtain(s, key, what, err);
    if (!name)
        return -1;
    if (store_budget(s, value.length, name->value_capacity, what, key, err)) {
        store_name_settle(s, name);
        return -1;
    }
    store_name_take_value(s, name, take_pointer(&block), value.length);
    store_waits_count(s, &name->waits, false);
    return 0;
}

static int step_set(struct store *s, const struct store_request *r, struct store_answer *a,
                    struct muster_error *err)
{
    (void)a;
    return set_value(s, r->key, r->value, "set", err);
}

/* One key of a MULTI_SET, ready to be stored. */
struct prepared {
    struct store_name *name;
    bool fresh; /* created for this request; a name that comes twice is fresh once */
    bool keeps; /* its block takes the value; no other value of this request makes that block smaller */
    char *block;
};

static int prepare(struct store *s, struct prepared *p, struct store_bytes key, struct store_bytes value,
                   size_t pending, struct muster_error *err)
{
    scope_free char *block = NULL;
    p->name = store_name_find(s, key);
    p->keeps = p->name && store_name_keeps_block(p->name, value.length);
    if (p->keeps)
        return 0;
    if (copy_value(s, key, value, "multi_set", &block, err))
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

static int step_multi_set(struct store *s, const struct store_request *r, struct store_answer *a,
                          struct muster_error *err)
{
    (void)a;
    scope_free struct prepared *all = mem_calloc(r->count, sizeof *all);
    if (!all)
        return error_set(err, MUSTER_E_NOMEM, "multi_set: no memory for %zu keys", r->count);
    size_t done = 0, pending = 0; /* replaced values are not credited: the same name may come twice */
    for (; done < r->count && !prepare(s, &all[done], r->keys[done], r->values[done], pending, err); done++)
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
            mem_free(all[i].block);
            if (all[i].fresh)
                store_name_settle(s, all[i].name);
        }
    }
    return whole ? 0 : -1;
}

static int step_get(struct store *s, const struct store_request *r, struct store_answer *a,
                    struct muster_error *err)
{
    (void)err;
    const struct store_name *name = store_name_find(s, r->key);
    a->found = name && name->present;
    a->value = store_name_value(name);
    return 0;
}

static int step_compare_set(struct store *s, const struct store_request *r, struct store_answer *a,
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
    if (set_value(s, r->key, r->value, "compare_set", err))
        return -1;
    a->found = true;
    a->value = r->value;
    return 0;
}

static int step_add(struct store *s, const struct store_request *r, struct store_answer *a,
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

static int step_append(struct store *s, const struct store_request *r, struct store_answer *a,
                       struct muster_error *err)
{
    (void)a;
    struct store_name *name = store_name_obtain(s, r->key, "append", err);
    if (!name)
        return -1;
    size_t length = name->value_length;
    if (store_name_reserve_value(s, name, length + r->value.length, "append", err)) {
        store_name_settle(s, name);
        return -1;
    }
    if (r->value.length)
        memcpy(name->value + length, r->value.data, r->value.length);
    name->value_length = length + r->value.length;
    s->present += !name->present;
    name->present = true;
    store_waits_count(s, &name->waits, false);
    return 0;
}

static int step_check(struct store *s, const struct store_request *r, struct store_answer *a,
                      struct muster_error *err)
{
    (void)err;
    a->found = true;
    for (size_t i = 0; i < r->count && a->found; i++)
        a->found = store_name_satisfies(store_name_find(s, r->keys[i]));
    return 0;
}

static int step_wait(struct store *s, const struct store_request *r, struct store_answer *a,
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
    size_t seat = 0;
    for (size_t i = first; i < r->count; i++) {
        struct store_name *name = store_name_obtain(s, r->keys[i], "wait", err);
        if (!name) {
            store_wait_drop(s, wait);
            return -1;
        }
        if (!store_name_satisfies(name))
            store_wait_sit(wait, seat++, name, &name->waits);
    }
    a->parked = true;
    return 0;
}

static int step_barrier(struct store *s, const struct store_request *r, struct store_answer *a,
                        struct muster_error *err)
{
    int64_t arrived = 0;
    if (store_name_read_number(store_name_find(s, r->key), "barrier", &arrived, err))
        return -1;
    if (arrived == INT64_MAX)
        return error_set(err, MUSTER_E_LIMIT, "barrier: the count of key \"%s\" leaves 64 bits",
                         store_key_text(r->key).text);
    a->number = arrived + 1;
    a->parked = r->again && r->number > 0 ? a->number % r->number != 0 : a->number < r->number;
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
        store_wait_sit(wait, 0, name, &name->barriers);
    else
        store_waits_count(s, &name->barriers, false);
    return 0;
}

static int step_cancel(struct store *s, const struct store_request *r, struct store_answer *a,
                       struct muster_error *err)
{
    (void)err;
    struct store_wait *wait = store_wait_find(s, r->client);
    a->found = wait != NULL;
    if (wait)
        store_wait_drop(s, wait);
    return 0;
}

static int step_num_keys(struct store *s, const struct store_request *r, struct store_answer *a,
                         struct muster_error *err)
{
    (void)r;
    (void)err;
    a->number = (int64_t)s->present;
    return 0;
}

static int step_delete(struct store *s, const struct store_request *r, struct store_answer *a,
                       struct muster_error *err)
{
    (void)err;
    struct store_name *name = store_name_find(s, r->key);
    a->number = name && name->present;
    if (a->number) {
        store_name_drop_value(s, name);
        store_name_settle(s, name);
    }
    return 0;
}

static int list_reserve(struct store *s, size_t count, const char *what, struct muster_error *err)
{
    if (count <= s->list_capacity)
        return 0;
    struct store_bytes *list = mem_realloc(s->list, count, sizeof *list);
    if (!list)
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory for an answer of %zu entries", what, count);
    s->list = list;
    s->list_capacity = count;
    return 0;
}

static int step_multi_get(struct store *s, const struct store_request *r, struct store_answer *a,
                          struct muster_error *err)
{
    if (list_reserve(s, r->count, "multi_get", err))
        return -1;
    for (size_t i = 0; i < r->count; i++)
        s->list[i] = store_name_value(store_name_find(s, r->keys[i]));
    a->list = s->list;
    a->count = r->count;
    return 0;
}

static int step_list_keys(struct store *s, const struct store_request *r, struct store_answer *a,
                          struct muster_error *err)
{
    (void)r;
    if (list_reserve(s, s->present, "list_keys", err))
        return -1;
    for (size_t i = 0; i <= s->names.mask; i++) {
        for (struct store_node *node = s->names.buckets[i]; node; node = node->next) {
            struct store_name *name = (struct store_name *)node;
            if (name->present)
                s->list[a->count++] = store_name_key(name);
        }
    }
    a->list = s->list;
    return 0;
}

static int step_queue_push(struct store *s, const struct store_request *r, struct store_answer *a,
                           struct muster_error *err)
{
    (void)a;
    if (r->value.length > s->limits.value_bytes)
        return error_set(err, MUSTER_E_LIMIT,
                         "queue_push: the value of key \"%s\" has %zu bytes, at most %zu are allowed",
                         store_key_text(r->key).text, r->value.length, s->limits.value_bytes);
    size_t cost = sizeof(struct store_item) + r->value.length;
    struct store_name *name = store_name_obtain(s, r->key, "queue_push", err);
    if (!name)
        return -1;
    struct store_item *item = NULL;
    if (!store_budget(s, cost, 0, "queue_push", r->key, err)) {
        item = mem_realloc(NULL, 1, cost);
        if (!item)
            error_set(err, MUSTER_E_NOMEM, "queue_push: no memory for %zu bytes of key \"%s\"", cost,
                      store_key_text(r->key).text);
    }
    if (!item) {
        store_name_settle(s, name);
        return -1;
    }
    item->next = NULL;
    item->length = r->value.length;
    if (item->length)
        memcpy(item->data, r->value.data, item->length);
    *(name->last ? &name->last->next : &name->first) = item;
    name->last = item;
    name->queued++;
    s->bytes += cost;
    store_waits_count(s, &name->waits, true);
    return 0;
}

static int step_queue_pop(struct store *s, const struct store_request *r, struct store_answer *a,
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
    s->bytes -= sizeof *item + item->length;
    store_name_settle(s, name);
    s->popped = item; /* the answer lends it until the next step */
    a->found = true;
    a->value = (struct store_bytes){item->data, item->length};
    return 0;
}

static int step_queue_len(struct store *s, const struct store_request *r, struct store_answer *a,
                          struct muster_error *err)
{
    (void)err;
    const struct store_name *name = store_name_find(s, r->key);
    a->number = name ? name->queued : 0;
    return 0;
}

int store_step(struct store *s, const struct store_request *request, struct store_answer *answer,
               struct muster_error *err)
{
    static int (*const steps[])(struct store *, const struct store_request *, struct store_answer *,
                                struct muster_error *) = {
        [STORE_SET] = step_set,
        [STORE_COMPARE_SET] = step_compare_set,
        [STORE_GET] = step_get,
        [STORE_ADD] = step_add,
        [STORE_CHECK] = step_check,
        [STORE_WAIT] = step_wait,
        [STORE_CANCEL] = step_cancel,
        [STORE_NUM_KEYS] = step_num_keys,
        [STORE_DELETE] = step_delete,
        [STORE_APPEND] = step_append,
        [STORE_MULTI_GET] = step_multi_get,
        [STORE_MULTI_SET] = step_multi_set,
        [STORE_QUEUE_PUSH] = step_queue_push,
        [STORE_QUEUE_POP] = step_queue_pop,
        [STORE_QUEUE_LEN] = step_queue_len,
        [STORE_LIST_KEYS] = step_list_keys,
        [STORE_BARRIER] = step_barrier,
        [STORE_LEAVE] = step_cancel,
    };
    _Static_assert(sizeof steps / sizeof *steps == STORE_OPERATION_COUNT, "every operation has a step");
    *answer = (struct store_answer){0};
    if ((unsigned)request->operation >= STORE_OPERATION_COUNT)
        return error_set(err, MUSTER_E_INVALID, "unknown store operation %d", (int)request->operation);
    if (request->count > s->limits.wait_keys)
        return error_set(err, MUSTER_E_LIMIT, "%s of %zu keys: at most %zu are allowed in one request",
                         store_operation_name(request->operation), request->count, s->limits.wait_keys);
    drop_loans(s);
    return steps[request->operation](s, request, answer, err);
}
