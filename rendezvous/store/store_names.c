/* store_names.c - names of a store: hash table, values, queues and the byte budget. */
#include "rendezvous/store/store_internal.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

enum { TABLE_START = 64 };

int store_table_init(struct store_table *table, struct muster_error *err)
{
    table->buckets = mem_calloc(TABLE_START, sizeof(*table->buckets));
    if (!table->buckets)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a store");
    table->mask = TABLE_START - 1;
    return 0;
}

static void store_table_grow(struct store_table *table)
{
    size_t buckets = (table->mask + 1) * 2;
    struct store_node **fresh = mem_calloc(buckets, sizeof *fresh);
    if (!fresh)
        return; /* still correct, only slower */
    for (size_t i = 0; i <= table->mask; i++) {
        struct store_node *node = table->buckets[i];
        while (node) {
            struct store_node *next = node->next;
            struct store_node **bucket = &fresh[node->hash & (buckets - 1)];
            node->next = *bucket;
            *bucket = node;
            node = next;
        }
    }
    mem_free(table->buckets);
    table->buckets = fresh;
    table->mask = buckets - 1;
}

void store_table_insert(struct store_table *table, struct store_node *node, uint64_t hash)
{
    if (table->count > table->mask)
        store_table_grow(table);
    node->hash = hash;
    struct store_node **bucket = &table->buckets[hash & table->mask];
    node->next = *bucket;
    *bucket = node;
    table->count++;
}

void store_table_remove(struct store_table *table, struct store_node *node)
{
    struct store_node **at = &table->buckets[node->hash & table->mask];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    table->count--;
}

struct store_key_text store_key_text(struct store_bytes key)
{
    struct store_key_text out;
    size_t room = sizeof out.text - 4, used = key.length < room ? key.length : room;
    for (size_t i = 0; i < used; i++) {
        unsigned char c = ((const unsigned char *)key.data)[i];
        out.text[i] = (char)(c >= 0x20 && c < 0x7f ? c : '?');
    }
    out.text[used] = '\0';
    if (used < key.length)
        (void)text_append(out.text, sizeof out.text, "...");
    return out;
}

int store_budget(const struct store *s, size_t more, size_t less, const char *what, struct store_bytes key,
                 struct muster_error *err)
{
    size_t used = s->bytes - less, limit = s->limits.total_bytes;
    if (more <= limit && used <= limit - more)
        return 0;
    return error_set(err, MUSTER_E_LIMIT,
                     "%s of key \"%s\" needs %zu bytes, but the store holds %zu of at most %zu bytes", what,
                     store_key_text(key).text, more, used, limit);
}

uint64_t store_hash_word(uint64_t hash, const char *at, size_t length)
{
    uint64_t word = 0;
    memcpy(&word, at, length);
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 32);
}

/* Eight bytes at a time; as text_hash, not collision-resistant. */
static uint64_t key_hash(struct store_bytes key)
{
    const char *at = key.data;
    size_t left = key.length;
    uint64_t hash = key.length;
    for (; left >= sizeof hash; at += sizeof hash, left -= sizeof hash)
        hash = store_hash_word(hash, at, sizeof hash);
    return left ? store_hash_word(hash, at, left) : hash;
}

struct store_name *store_name_find(const struct store *s, struct store_bytes key)
{
    uint64_t hash = key_hash(key);
    for (struct store_node *node = s->names.buckets[hash & s->names.mask]; node; node = node->next) {
        struct store_name *name = (struct store_name *)node;
        if (node->hash == hash && name->key_length == key.length &&
            (!key.length || !memcmp(name->key, key.data, key.length)))
            return name;
    }
    return NULL;
}

size_t store_name_cost(size_t key_length)
{
    return sizeof(struct store_name) + key_length + 1;
}

struct store_name *store_name_obtain(struct store *s, struct store_bytes key, const char *what,
                                     struct muster_error *err)
{
    struct store_name *name = store_name_find(s, key);
    if (name)
        return name;
    if (key.length > s->limits.key_bytes) {
        error_set(err, MUSTER_E_LIMIT, "%s: key \"%s\" has %zu bytes, at most %zu are allowed", what,
                  store_key_text(key).text, key.length, s->limits.key_bytes);
        return NULL;
    }
    if (s->names.count >= s->limits.keys) {
        error_set(err, MUSTER_E_LIMIT, "%s of key \"%s\": the store holds %zu names already, its limit", what,
                  store_key_text(key).text, s->names.count);
        return NULL;
    }
    if (store_budget(s, store_name_cost(key.length), 0, what, key, err))
        return NULL;
    name = mem_calloc(1, store_name_cost(key.length));
    if (!name) {
        error_set(err, MUSTER_E_NOMEM, "%s: no memory for key \"%s\"", what, store_key_text(key).text);
        return NULL;
    }
    store_link_init(&name->waits);
    store_link_init(&name->barriers);
    name->key_length = key.length;
    if (key.length)
        memcpy(name->key, key.data, key.length);
    store_table_insert(&s->names, &name->node, key_hash(key));
    name->owner = s->writer;
    store_charge(s, name->owner, store_name_cost(key.length));
    return name;
}

void store_name_settle(struct store *s, struct store_name *name)
{
    if (store_name_satisfies(name) || !store_link_empty(&name->waits) || !store_link_empty(&name->barriers))
        return;
    assert(!name->value); /* a block that is reserved is written at once, and goes with the value */
    store_table_remove(&s->names, &name->node);
    store_discharge(s, name->owner, store_name_cost(name->key_length));
    mem_free(name);
}

void store_name_drop_value(struct store *s, struct store_name *name)
{
    store_discharge(s, name->owner, store_name_capacity(name));
    s->present -= name->present;
    store_block_leave(s, take_pointer(&name->value));
    name->value_length = 0;
    name->present = false;
}

void store_name_drop_queue(struct store *s, struct store_name *name)
{
    while (name->first) {
        struct store_item *item = name->first;
        name->first = item->next;
        store_discharge(s, item->owner, sizeof *item + item->length);
        store_block_leave(s, item->block);
        mem_free(item);
    }
    name->last = NULL;
    name->queued = 0;
}

int store_name_reserve_value(struct store *s, struct store_name *name, size_t length, const char *what,
                             struct muster_error *err)
{
    if (length > s->limits.value_bytes)
        return error_set(err, MUSTER_E_LIMIT,
                         "%s: the value of key \"%s\" would have %zu bytes, at most %zu are allowed", what,
                         store_key_text(store_name_key(name)).text, length, s->limits.value_bytes);
    const size_t before = store_name_capacity(name);
    const bool shared = store_block_shared(name->value);
    if (length <= before && !shared)
        return 0;
    size_t capacity = length;
    if (name->value_length && length < 2 * before)
        capacity = 2 * before; /* so that many small appends take linear time */
    if (capacity > s->limits.value_bytes)
        capacity = s->limits.value_bytes;
    /* Readers keep the block that they share. */
    if (store_budget(s, capacity, shared ? 0 : before, what, store_name_key(name), err))
        return -1;
    struct store_block *moved =
        name->value && !shared ? store_block_resize(name->value, capacity) : store_block_create(capacity);
    if (!moved)
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory for a value of %zu bytes of key \"%s\"", what,
                         length, store_key_text(store_name_key(name)).text);
    if (shared) {
        memcpy(moved->data, name->value->data, name->value_length);
        store_block_leave(s, name->value);
    }
    store_block_enter(moved);
    name->value = moved;
    store_charge(s, name->owner, capacity);
    store_discharge(s, name->owner, before);
    return 0;
}

void store_name_take_value(struct store *s, struct store_name *name, struct store_block *block, size_t length)
{
    store_name_drop_value(s, name);
    store_name_claim(s, name);
    name->value = block;
    name->value_length = length;
    store_block_enter(block);
    name->present = true;
    store_charge(s, name->owner, length);
    s->present++;
}

bool store_name_keeps_block(const struct store_name *name, size_t length)
{
    return length <= store_name_capacity(name) && store_name_capacity(name) <= STORE_BLOCK_KEPT &&
           !store_block_shared(name->value);
}

void store_name_rewrite_value(struct store *s, struct store_name *name, struct store_bytes value)
{
    store_name_claim(s, name);
    if (value.length)
        memcpy(name->value->data, value.data, value.length);
    name->value_length = value.length;
    s->present += !name->present;
    name->present = true;
}

void store_name_write_number(struct store *s, struct store_name *name, int64_t number)
{
    char text[STORE_NUMBER_LENGTH], *at = text + sizeof text;
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (number < 0)
        *--at = '-';
    store_name_rewrite_value(s, name, (struct store_bytes){at, (size_t)(text + sizeof text - at)});
}

/* As C++'s stoll, which PyTorch's server uses: blanks, a sign, digits; any bytes after them are ignored. */
static bool parse_leading_number(struct store_bytes value, int64_t *number)
{
    const char *at = value.length ? value.data : "", *end = at + value.length;
    while (at < end && isspace((unsigned char)*at))
        at++;
    bool negative = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    if (at == end || !isdigit((unsigned char)*at))
        return false;
    for (*number = 0; at < end && isdigit((unsigned char)*at); at++) {
        int digit = negative ? '0' - *at : *at - '0';
        if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, digit, number))
            return false;
    }
    return true;
}

int store_name_read_number(const struct store_name *name, const char *what, int64_t *number,
                           struct muster_error *err)
{
    *number = 0;
    if (!name || !name->present)
        return 0;
    struct store_bytes value = {name->value ? name->value->data : NULL, name->value_length};
    if (!parse_leading_number(value, number))
        return error_set(err, MUSTER_E_INVALID,
                         "%s: the value \"%s\" of key \"%s\" does not begin with a decimal number of 64 bits",
                         what, store_key_text(value).text, store_key_text(store_name_key(name)).text);
    return 0;
}

void store_names_drop_all(struct store *s)
{
    for (size_t i = 0; i <= s->names.mask; i++) {
        while (s->names.buckets[i]) {
            struct store_name *name = (struct store_name *)s->names.buckets[i];
            store_name_drop_value(s, name);
            store_name_drop_queue(s, name);
            store_name_settle(s, name);
        }
    }
}
