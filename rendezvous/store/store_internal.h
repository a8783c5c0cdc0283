/* store_internal.h - the parts of a store, shared by store.c (its life and the table of operations),
 * store_names.c (names, values, budget), store_values.c and store_queues.c (operations on them) and
 * store_waits.c (parked clients). Included by these only. */
#ifndef MUSTER_RENDEZVOUS_STORE_STORE_INTERNAL_H
#define MUSTER_RENDEZVOUS_STORE_STORE_INTERNAL_H

#include "rendezvous/store/store.h"

/* A circular doubly linked list; the head is a link of its own. */
struct store_link {
    struct store_link *previous, *next;
};

/* Chained hash table of nodes that live inside their owners: inserting never allocates, so it cannot fail;
 * growing is an attempt whose failure only makes chains longer. */
struct store_node {
    struct store_node *next;
    uint64_t hash;
};
struct store_table {
    struct store_node **buckets;
    size_t mask; /* buckets - 1; a power of two */
    size_t count;
};

struct store_item { /* of a queue */
    struct store_item *next;
    size_t length;
    char data[];
};

/* A name exists while it has a value, queued items, or a client that waits for it. */
struct store_name {
    struct store_node node; /* first: a node is its name */
    bool present;           /* has a value */
    char *value;
    size_t value_length, value_capacity;
    struct store_item *first, *last;
    int64_t queued;
    struct store_link waits;    /* store_seat.link of WAITs that still miss it */
    struct store_link barriers; /* store_seat.link of BARRIERs parked on it */
    size_t key_length;
    char key[];
};

struct store_wait;
struct store_seat { /* one wait's place in one name's list */
    struct store_link link;
    struct store_name *name; /* NULL once the name has appeared */
    struct store_wait *wait;
};
struct store_wait {
    struct store_node node;   /* in the table by client */
    struct store_link queued; /* in the list of released waits once missing is 0 */
    uint64_t client;
    enum store_wake_reason reason;
    bool released;
    size_t missing;
    size_t seat_count;
    struct store_seat seats[];
};

struct store {
    struct store_limits limits;
    struct store_table names, waits;
    struct store_link released; /* store_wait.queued */
    size_t present;             /* names with a value */
    size_t bytes;
    uint64_t round;
    struct store_item *popped; /* the answer of the last QUEUE_POP */
    struct store_bytes *list;  /* the answer of the last MULTI_GET or LIST_KEYS */
    size_t list_capacity;
};

static inline void store_link_init(struct store_link *head)
{
    head->previous = head->next = head;
}
static inline bool store_link_empty(const struct store_link *head)
{
    return head->next == head;
}
static inline void store_link_append(struct store_link *head, struct store_link *link)
{
    link->previous = head->previous;
    link->next = head;
    head->previous->next = link;
    head->previous = link;
}
static inline void store_link_remove(struct store_link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    store_link_init(link);
}

/* store_names.c */
int store_table_init(struct store_table *table, struct muster_error *err);
void store_table_insert(struct store_table *table, struct store_node *node, uint64_t hash);
void store_table_remove(struct store_table *table, struct store_node *node);

/* A key for an error text: cut, and with "?" for what does not print. */
struct store_key_text {
    char text[72];
};
struct store_key_text store_key_text(struct store_bytes key);

/* Whether `more` bytes fit beside `less` that will be given back; what and key are for the error. */
int store_budget(const struct store *s, size_t more, size_t less, const char *what, struct store_bytes key,
                 struct muster_error *err);
struct store_name *store_name_find(const struct store *s, struct store_bytes key);
/* The name of key, created where it is new. The caller gives it something to exist for, or calls
 * store_name_settle.
 */
struct store_name *store_name_obtain(struct store *s, struct store_bytes key, const char *what,
                                     struct muster_error *err);
/* Frees the name if nothing keeps it. */
void store_name_settle(struct store *s, struct store_name *name);
void store_name_drop_value(struct store *s, struct store_name *name);
void store_name_drop_queue(struct store *s, struct store_name *name);
/* Makes room for a value of `length` bytes without changing the value that is there. */
int store_name_reserve_value(struct store *s, struct store_name *name, size_t length, const char *what,
                             struct muster_error *err);
/* Takes over block (mem_realloc'ed, length bytes) as the value. */
void store_name_take_value(struct store *s, struct store_name *name, char *block, size_t length);
/* Whether a value of length bytes may take the place of the old one in its block: blocks are small then, so
 * that a value never holds much more memory than it has bytes. */
enum { STORE_BLOCK_KEPT = 256 };
bool store_name_keeps_block(const struct store_name *name, size_t length);
/* Replaces the value in its block, which is large enough; cannot fail. */
void store_name_rewrite_value(struct store *s, struct store_name *name, struct store_bytes value);
/* Writes a number as decimal text; cannot fail once STORE_NUMBER_LENGTH bytes are reserved. */
enum { STORE_NUMBER_LENGTH = 24 };
void store_name_write_number(struct store *s, struct store_name *name, int64_t number);
/* The value as a number; a missing one is 0. */
int store_name_read_number(const struct store_name *name, const char *what, int64_t *number,
                           struct muster_error *err);
static inline bool store_name_satisfies(const struct store_name *name)
{
    return name && (name->present || name->queued > 0);
}
static inline struct store_bytes store_name_key(const struct store_name *name)
{
    return (struct store_bytes){name->key, name->key_length};
}
/* Empties the store; no name may have waiters. */
void store_names_drop_all(struct store *s);

/* store_waits.c */
struct store_wait *store_wait_find(const struct store *s, uint64_t client);
/* A parked wait of client with seat_count seats that are in no list yet; MUSTER_E_STATE where the client has
 * one. */
struct store_wait *store_wait_create(struct store *s, uint64_t client, size_t seat_count, const char *what,
                                     struct store_bytes key, struct muster_error *err);
/* Puts the next seat of the wait into a list of the name (name->waits or name->barriers). */
void store_wait_sit(struct store_wait *wait, size_t seat, struct store_name *name, struct store_link *list);
/* Takes its seats out of all lists and frees it. */
void store_wait_drop(struct store *s, struct store_wait *wait);
/* The name has appeared: every seat of the list counts it (only the first, where one is set). */
void store_waits_count(struct store *s, struct store_link *list, bool one);
/* Releases every parked wait with the reason. */
void store_waits_release_all(struct store *s, enum store_wake_reason reason);

/* store.c: room for count entries in s->list; what is for the error. */
int store_list_reserve(struct store *s, size_t count, const char *what, struct muster_error *err);

/* The operations: what store_step does for a request that is within the limits of its size. The answer comes
 * zeroed. On failure nothing has changed. */
typedef int store_step_function(struct store *s, const struct store_request *r, struct store_answer *a,
                                struct muster_error *err);
store_step_function store_step_set, store_step_get, store_step_compare_set, store_step_add, store_step_append;
store_step_function store_step_multi_set, store_step_multi_get;
store_step_function store_step_queue_push, store_step_queue_pop, store_step_queue_len;
store_step_function store_step_check, store_step_wait, store_step_barrier, store_step_cancel;

#endif
