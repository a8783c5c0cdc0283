/* store.h - the key-value engine that agents and workers share: pure, no I/O, no clock, no thread.
 *
 * `store_step` carries out one request of one client and fills the answer. A WAIT or BARRIER that cannot be
 * answered yet parks the client; later steps of other clients release it, and `store_next_wake` returns it
 * with the reason. Each time a key appears, each of its parked waits costs O(1): a wait counts its missing
 * keys, a name has the list of its waits.
 *
 * Semantics follow PyTorch's TCPStore, so that its clients can be served:
 * - values are opaque bytes; ADD and BARRIER keep a decimal number as text in the value, read the number that
 * the value begins with, and wrap at 64 bits; a barrier opens for each arrival whose count is at least the
 * world size;
 * - COMPARE_SET answers with the value after the operation, except that a missing key with a
 * non-empty `expected` stores nothing and answers with `expected`;
 * - a key and a queue may have the same name. NUM_KEYS does not count queues; a name with a
 * non-empty queue satisfies CHECK and WAIT, and one QUEUE_PUSH releases one waiter (the longest waiting);
 * - once a key has appeared, a wait counts it even if it is deleted before the wait ends.
 *
 * Each client may have an account: a request may name its owner (store_owner_create). The owner is charged
 * for the request's values, queue items and waits, until another owner replaces them. store_forfeit deletes
 * them all.
 *
 * A store belongs to one thread at a time. */
#ifndef MUSTER_RENDEZVOUS_STORE_STORE_H
#define MUSTER_RENDEZVOUS_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds; 0 in a field means the default. A step that would cross one fails with MUSTER_E_LIMIT and changes
 * nothing. */
struct store_limits {
    size_t key_bytes;   /* 8 KiB: PyTorch's own server has the same */
    size_t value_bytes; /* 8 MiB: PyTorch's own server has the same; also bounds a value that APPEND grows */
    size_t keys;        /* 1 Mi names: 4,096 ranks that publish 256 keys each */
    size_t wait_keys;   /* 131,072 keys in one request, as PyTorch's own server */
    size_t total_bytes; /* 256 MiB of names, values, queues and parked waits together: an agent shares its
                           pod's memory with the workers */
};
struct store_limits store_limits_default(void);

/* Borrowed bytes. */
struct store_bytes {
    const void *data;
    size_t length;
};

/* Memory of one value, counted by references: a request's value becomes the store's without a copy, and a
 * reply is read from the store's value, which stays as it was even if it is replaced. */
struct store_block;

/* operation, printable name */
#define STORE_OPERATIONS(X)                                                                                  \
    X(STORE_SET, "set")                                                                                      \
    X(STORE_COMPARE_SET, "compare_set")                                                                      \
    X(STORE_GET, "get")                                                                                      \
    X(STORE_ADD, "add")                                                                                      \
    X(STORE_CHECK, "check")                                                                                  \
    X(STORE_WAIT, "wait")                                                                                    \
    X(STORE_CANCEL, "cancel")                                                                                \
    X(STORE_NUM_KEYS, "num_keys")                                                                            \
    X(STORE_DELETE, "delete")                                                                                \
    X(STORE_APPEND, "append")                                                                                \
    X(STORE_MULTI_GET, "multi_get")                                                                          \
    X(STORE_MULTI_SET, "multi_set")                                                                          \
    X(STORE_QUEUE_PUSH, "queue_push")                                                                        \
    X(STORE_QUEUE_POP, "queue_pop")                                                                          \
    X(STORE_QUEUE_LEN, "queue_len")                                                                          \
    X(STORE_LIST_KEYS, "list_keys")                                                                          \
    X(STORE_BARRIER, "barrier")                                                                              \
    X(STORE_LEAVE, "leave")

enum store_operation {
#define STORE_OPERATION_ENUM(symbol, name) symbol,
    STORE_OPERATIONS(STORE_OPERATION_ENUM)
#undef STORE_OPERATION_ENUM
        STORE_OPERATION_COUNT
};
/* "set"; "unknown" for anything else. */
const char *store_operation_name(int operation);

struct store_owner;

/* One request. All bytes are borrowed for the call. */
struct store_request {
    enum store_operation operation;
    struct store_owner *owner; /* is charged for the request's additions; NULL: no account */
    uint64_t client; /* the client's number, assigned by the caller; read by WAIT, BARRIER, CANCEL and
                        LEAVE */
    struct store_bytes key;
    struct store_bytes value;         /* SET, APPEND, QUEUE_PUSH; COMPARE_SET: the desired one */
    struct store_bytes expected;      /* COMPARE_SET */
    int64_t number;                   /* ADD: delta; BARRIER: world size */
    bool reusable;                    /* BARRIER: opens at each multiple of the world size */
    const struct store_bytes *keys;   /* CHECK, WAIT, MULTI_GET, MULTI_SET: count names */
    const struct store_bytes *values; /* MULTI_SET: count values */
    size_t count;
    struct store_block *const
        *blocks; /* NULL, or the block of value (or of each of values), or NULL for a value without a block.
                    The block has the value's length, and is no other key's. The store takes a reference. */
};

/* The answer. Bytes are borrowed from the store, or from the request, until the next call with the store. */
struct store_answer {
    bool parked;    /* WAIT, BARRIER: no answer yet; a wake follows */
    bool found;     /* GET, COMPARE_SET, QUEUE_POP: value is in the store; CHECK: all keys exist; CANCEL: the
                       client had a wait */
    int64_t number; /* ADD: the sum; NUM_KEYS, QUEUE_LEN: the count; QUEUE_POP: the length before; DELETE: 0
                       or 1; BARRIER: arrivals so far */
    struct store_bytes value;       /* GET, COMPARE_SET, QUEUE_POP; empty if not found */
    const struct store_bytes *list; /* MULTI_GET: values, empty if missing; LIST_KEYS: names in no order */
    size_t count;
};

/* reason, printable name */
#define STORE_WAKES(X)                                                                                       \
    X(STORE_WAKE_READY, "ready") /* the wait or barrier is fulfilled */                                      \
    X(STORE_WAKE_WIPED, "wiped") /* store_wipe has dropped its key space */

enum store_wake_reason {
#define STORE_WAKE_ENUM(symbol, name) symbol,
    STORE_WAKES(STORE_WAKE_ENUM)
#undef STORE_WAKE_ENUM
};
const char *store_wake_name(int reason);

struct store_wake {
    uint64_t client;
    enum store_wake_reason reason;
};

struct store_stats {
    size_t keys;    /* names with a value */
    size_t names;   /* keys, queues, and names without either that a client waits for */
    size_t bytes;   /* bounded by total_bytes */
    size_t parked;  /* waiting clients */
    uint64_t round; /* wipes so far */
};

struct store;

/* Owned by the caller. limits NULL: the defaults. */
struct store *store_create(const struct store_limits *limits, struct muster_error *err);
void store_destroy(struct store *s);
GUARD_DEFINE(store, struct store *, store_destroy);

/* Carries out one request. On failure nothing has changed (a parked client stays parked). A client has at
 * most one wait: WAIT or BARRIER of a parked client fails with MUSTER_E_STATE. CANCEL drops a client's wait,
 * also a fulfilled wait that store_next_wake has not returned yet; LEAVE does the same for a disconnected
 * client. Keys stay. */
int store_step(struct store *s, const struct store_request *request, struct store_answer *answer,
               struct muster_error *err);
/* The next released client, in order of release; false if there is none. Call until false after every step.
 */
bool store_next_wake(struct store *s, struct store_wake *wake);
/* A block of so many bytes, with one reference. NULL: no memory. */
struct store_block *store_block_create(size_t capacity);
/* Needs a block with a single reference. NULL: no memory, and block stays. */
struct store_block *store_block_resize(struct store_block *block, size_t capacity);
char *store_block_data(struct store_block *block);
size_t store_block_capacity(const struct store_block *block);
/* Gives up a reference. Accepts NULL. */
void store_block_release(struct store_block *block);
GUARD_DEFINE(store_block, struct store_block *, store_block_release);

/* A reader's reference to a value. The writer is charged for a stored value; after its deletion
 * a reader is. */
struct store_hold {
    struct store_block *block;
    struct store_owner *owner;
    struct store_hold *next, **at; /* in the block's list */
};
/* data: of an answer's non-empty value to GET, MULTI_GET or QUEUE_POP, before the next step. owner outlives
 * the hold. */
void store_hold(struct store *s, struct store_hold *hold, const void *data, struct store_owner *owner);
void store_hold_end(struct store *s, struct store_hold *hold);

/* Drops all keys and queues; releases parked clients with STORE_WAKE_WIPED. */
void store_wipe(struct store *s);
/* An account. NULL with err. */
struct store_owner *store_owner_create(struct store *s, struct muster_error *err);
/* The owner makes no more requests. Its values and items stay; its account stays until they are gone. Accepts
 * NULL. */
void store_owner_leave(struct store *s, struct store_owner *owner);
size_t store_owner_bytes(const struct store_owner *owner);
/* The owner with the most bytes of all that have left; NULL: they have none. */
struct store_owner *store_largest_left(const struct store *s);
/* Deletes the owner's values and queue items; waits of other clients for their names stay. An owner that has
 * left is freed. Its own wait ends by STORE_LEAVE. */
void store_forfeit(struct store *s, struct store_owner *owner);
/* Another bound of total_bytes from now on; stored values stay. */
void store_set_total(struct store *s, size_t total_bytes);
/* The bounds in force. */
struct store_limits store_limits_of(const struct store *s);
struct store_stats store_stats(const struct store *s);

#ifdef __cplusplus
}
#endif
#endif
