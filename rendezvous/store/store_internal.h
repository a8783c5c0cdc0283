/* store_internal.h - the parts of a store, shared by store.c (create, destroy, the table of operations),
 * store_names.c (names, values, budget), store_blocks.c (the memory
 * of values), store_values.c and store_queues.c (operations on them) and
 * store_waits.c (parked clients). Included by these only. */
#ifndef MUSTER_RENDEZVOUS_STORE_STORE_INTERNAL_H
#define MUSTER_RENDEZVOUS_STORE_STORE_INTERNAL_H

#include "rendezvous/store/store.h"

/* A circular doubly linked list; the head is a link of its own. */
struct store_link {
    struct store_link *previous, *next;
};

/* Chained hash table of nodes that are embedded in their owners: inserting never allocates, so it cannot
 * fail; if growing fails, the chains only become longer. */
struct store_node {
    struct store_node *next;
    uint64_t hash;
};
struct store_table {
    struct store_node **buckets;
    size_t mask; /* buckets - 1; a power of two */
    size_t count;
};

struct store_owner {
    struct store_link link; /* in store.owners */
    size_t bytes;
    bool left;
};

struct store_block {
    uint32_t references;
    uint32_t stored; /* 1: the value of a name, or an item; its writer is charged for it */
    struct store_hold *holds;
    struct store_hold *payer; /* the hold whose owner is charged, since no writer is */
    size_t capacity;
    char data[];
};

struct store_item { /* an item of a queue */
    struct store_item *next;
    struct store_owner *owner;
    struct store_block *block; /* NULL: empty */
    size_t length;
};

/* A name exists while it has a value, queued items, or a client that waits for it. */
struct store_name {
    struct store_node node;    /* first: a node is its name */
    struct store_owner *owner; /* owner of the name and its value; NULL: no account */
    bool present;              /* has a value */
    struct store_block *value; /* NULL: none, or an empty one */
    size_t value_length;
    struct store_item *first, *last;
    int64_t queued;
    struct store_link waits;    /* store_wait_entry.link of WAITs for which it is missing */
    struct store_link barriers; /* store_wait_entry.link of BARRIERs parked on it */
    size_t key_length;
    char key[];
};

struct store_wait;
struct store_wait_entry { /* one wait in one name's list */
    struct store_link link;
    struct store_name *name; /* NULL once the name has appeared */
    struct store_wait *wait;
};
struct store_wait {
    struct store_node node;   /* in the table by client */
    struct store_link queued; /* in the list of released waits once missing is 0 */
    uint64_t client;
    struct store_owner *owner;
    enum store_wake_reason reason;
    bool released;
    size_t missing;
    size_t entry_count;
    struct store_wait_entry entries[];
};

struct store {
    struct store_limits limits;
    struct store_table names, waits;
    struct store_link released; /* store_wait.queued */
    size_t present;             /* names with a value */
    size_t bytes;
    struct store_link owners;   /* store_owner.link */
    struct store_owner *writer; /* owner of the request in progress */
    uint64_t round;
    size_t holds;
    struct store_block *popped; /* the answer of the last QUEUE_POP */
    struct store_bytes *list;   /* the answer of the last MULTI_GET or LIST_KEYS */
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

/* store_owners.c: every change of store.bytes. */
void store_charge(struct store *s, struct store_owner *owner, size_t more);
void store_discharge(struct store *s, struct store_owner *owner, size_t less);
/* The name with its value becomes the writer's. */
void store_name_claim(struct store *s, struct store_name *name);

/* store_blocks.c */
/* A reference to the value's own block, or a copy; NULL with *block for an empty one. what and key are for
 * the error. */
int store_block_of(const struct store_request *r, size_t index, struct store_bytes value,
                   struct store_bytes key, const char *what, struct store_block **block,
                   struct muster_error *err);
/* The block becomes a value, and is none any more (it then loses the store's reference). Accept NULL. */
void store_block_enter(struct store_block *block);
void store_block_leave(struct store *s, struct store_block *block);
static inline bool store_block_shared(const struct store_block *block)
{
    return block && block->references > 1;
}

/* store_names.c */
static inline size_t store_name_capacity(const struct store_name *name)
{
    return name->value ? name->value->capacity : 0;
}
int store_table_init(struct store_table *table, struct muster_error *err);
void store_table_insert(struct store_table *table, struct store_node *node, uint64_t hash);
void store_table_remove(struct store_table *table, struct store_node *node);

/* At most eight bytes into a hash whose low bits select a bucket; not collision-resistant. */
uint64_t store_hash_word(uint64_t hash, const char *at, size_t length);

/* A key for an error text: cut, with "?" for unprintable bytes. */
struct store_key_text {
    char text[72];
};
struct store_key_text store_key_text(struct store_bytes key);

size_t store_name_cost(size_t key_length);
/* 0 if `more` bytes fit after `less` bytes are freed; what, key: for the error's text. */
int store_budget(const struct store *s, size_t more, size_t less, const char *what, struct store_bytes key,
                 struct muster_error *err);
struct store_name *store_name_find(const struct store *s, struct store_bytes key);
/* The name of key, created if it is new. The caller gives it a value, an item or a wait, or calls
 * store_name_settle. */
struct store_name *store_name_obtain(struct store *s, struct store_bytes key, const char *what,
                                     struct muster_error *err);
/* Frees the name if it has no value, no items and no waits. */
void store_name_settle(struct store *s, struct store_name *name);
void store_name_drop_value(struct store *s, struct store_name *name);
void store_name_drop_queue(struct store *s, struct store_name *name);
/* Allocates room for a value of `length` bytes; the present value is unchanged. */
int store_name_reserve_value(struct store *s, struct store_name *name, size_t length, const char *what,
                             struct muster_error *err);
/* Takes over the reference to block (length bytes) as the value. */
void store_name_take_value(struct store *s, struct store_name *name, struct store_block *block,
                           size_t length);
/* Whether a value of length bytes may reuse the old value's block: only small blocks are reused, so that a
 * value never occupies much more memory than its length; and none that a reader holds. */
enum { STORE_BLOCK_KEPT = 256 };
bool store_name_keeps_block(const struct store_name *name, size_t length);
/* Replaces the value in its block, which must be large enough; cannot fail. */
void store_name_rewrite_value(struct store *s, struct store_name *name, struct store_bytes value);
/* Writes a number as decimal text; cannot fail once STORE_NUMBER_LENGTH bytes are reserved. */
enum { STORE_NUMBER_LENGTH = 24 };
void store_name_write_number(struct store *s, struct store_name *name, int64_t number);
/* The value as a number; 0 if it is missing. */
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
/* A parked wait of client with entry_count entries that are in no list yet; MUSTER_E_STATE if the client has
 * a wait already. */
struct store_wait *store_wait_create(struct store *s, uint64_t client, size_t entry_count, const char *what,
                                     struct store_bytes key, struct muster_error *err);
/* Puts the next entry of the wait into a list of the name (name->waits or name->barriers). */
void store_wait_add_entry(struct store_wait *wait, size_t entry, struct store_name *name,
                          struct store_link *list);
/* Removes its entries from all lists and frees it. */
void store_wait_drop(struct store *s, struct store_wait *wait);
/* The name has appeared: counts it for every wait in the list (with one: only for the first), and releases
 * the waits that have no missing name left. */
void store_waits_count(struct store *s, struct store_link *list, bool one);
/* Releases every parked wait. */
void store_waits_release_all(struct store *s, enum store_wake_reason reason);

/* store.c: room for count entries in s->list. what: named in the error's text. */
int store_list_reserve(struct store *s, size_t count, const char *what, struct muster_error *err);

/* The operations of store_step, for requests within the limit of keys. The answer is zeroed by the caller. On
 * failure nothing has changed. */
typedef int store_step_function(struct store *s, const struct store_request *r, struct store_answer *a,
                                struct muster_error *err);
store_step_function store_step_set, store_step_get, store_step_compare_set, store_step_add, store_step_append;
store_step_function store_step_multi_set, store_step_multi_get;
store_step_function store_step_queue_push, store_step_queue_pop, store_step_queue_len;
store_step_function store_step_check, store_step_wait, store_step_barrier, store_step_cancel;

#endif
