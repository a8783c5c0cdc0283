/* store.c - see store.h: create and destroy, operations that only use names, and the table of operations. The
 * others are in store_values.c, store_queues.c and store_waits.c; store_names.c has names and the byte
 * budget. */
#include "rendezvous/store/store.h"

#include <assert.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/store/store_internal.h"

/* A scratch list longer than this is freed after the request that needed it. */
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
    store_link_init(&s->owners);
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

/* Frees memory that the last answer's bytes were borrowed from. */
static void free_answer_memory(struct store *s)
{
    store_block_release(take_pointer(&s->popped));
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
    free_answer_memory(s);
    while (!store_link_empty(&s->owners)) {
        struct store_owner *owner = (struct store_owner *)s->owners.next;
        store_link_remove(&owner->link);
        mem_free(owner);
    }
    mem_free(s->list);
    mem_free(s->names.buckets);
    mem_free(s->waits.buckets);
    mem_free(s);
}

void store_wipe(struct store *s)
{
    store_waits_release_all(s, STORE_WAKE_WIPED);
    store_names_drop_all(s);
    free_answer_memory(s);
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

int store_list_reserve(struct store *s, size_t count, const char *what, struct muster_error *err)
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

static int step_list_keys(struct store *s, const struct store_request *r, struct store_answer *a,
                          struct muster_error *err)
{
    (void)r;
    if (store_list_reserve(s, s->present, "list_keys", err))
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

int store_step(struct store *s, const struct store_request *request, struct store_answer *answer,
               struct muster_error *err)
{
    static store_step_function *const steps[] = {
        [STORE_SET] = store_step_set,
        [STORE_COMPARE_SET] = store_step_compare_set,
        [STORE_GET] = store_step_get,
        [STORE_ADD] = store_step_add,
        [STORE_CHECK] = store_step_check,
        [STORE_WAIT] = store_step_wait,
        [STORE_CANCEL] = store_step_cancel,
        [STORE_NUM_KEYS] = step_num_keys,
        [STORE_DELETE] = step_delete,
        [STORE_APPEND] = store_step_append,
        [STORE_MULTI_GET] = store_step_multi_get,
        [STORE_MULTI_SET] = store_step_multi_set,
        [STORE_QUEUE_PUSH] = store_step_queue_push,
        [STORE_QUEUE_POP] = store_step_queue_pop,
        [STORE_QUEUE_LEN] = store_step_queue_len,
        [STORE_LIST_KEYS] = step_list_keys,
        [STORE_BARRIER] = store_step_barrier,
        [STORE_LEAVE] = store_step_cancel,
    };
    _Static_assert(sizeof steps / sizeof *steps == STORE_OPERATION_COUNT, "every operation has a step");
    *answer = (struct store_answer){0};
    if ((unsigned)request->operation >= STORE_OPERATION_COUNT)
        return error_set(err, MUSTER_E_INVALID, "unknown store operation %d", (int)request->operation);
    if (request->count > s->limits.wait_keys)
        return error_set(err, MUSTER_E_LIMIT, "%s of %zu keys: at most %zu are allowed in one request",
                         store_operation_name(request->operation), request->count, s->limits.wait_keys);
    const size_t before = s->bytes;
    free_answer_memory(s);
    s->writer = request->owner;
    int result = steps[request->operation](s, request, answer, err);
    s->writer = NULL;
    assert(s->present <= s->names.count);
    assert(result || s->bytes <= before || s->bytes <= s->limits.total_bytes);
    assert(s->names.count + s->waits.count + s->holds > 0 ||
           s->bytes == 0); /* all counted bytes belong to a name, a waiter or a reader */
    return result;
}
