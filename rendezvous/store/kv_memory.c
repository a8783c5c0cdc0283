/* kv_memory.c - see kv_memory.h. A store under a mutex; a wait for a key sleeps until anything was set. */
#include "rendezvous/store/kv_memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/store/store.h"

struct kv_memory {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct store *store;
};

struct kv_memory *kv_memory_create(struct muster_error *err)
{
    struct kv_memory *m = mem_calloc(1, sizeof *m);
    if (!m) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a store in memory");
        return NULL;
    }
    m->store = store_create(NULL, err);
    if (!m->store) {
        mem_free(m);
        return NULL;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&m->mutex, NULL);
    return m;
}

void kv_memory_destroy(struct kv_memory *m)
{
    if (!m)
        return;
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    store_destroy(m->store);
    mem_free(m);
}

static struct store_bytes text_bytes(const char *text)
{
    return (struct store_bytes){text, strlen(text)};
}

static int kv_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    struct kv_memory *m = ctx;
    struct store_request request = {.operation = STORE_SET, .key = text_bytes(key), .value = {data, n}};
    struct store_answer answer;
    pthread_mutex_lock(&m->mutex);
    int result = store_step(m->store, &request, &answer, err);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    return result;
}

static int kv_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                  struct muster_error *err)
{
    struct kv_memory *m = ctx;
    struct store_request request = {.operation = STORE_GET, .key = text_bytes(key)};
    struct store_answer answer;
    struct timespec until = instant_timespec(instant_add(clock_now(NULL), timeout_ns));
    int waited = 0, result;
    pthread_mutex_lock(&m->mutex);
    while (!(result = store_step(m->store, &request, &answer, err)) && !answer.found && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&m->changed, &m->mutex, &until);
    if (!result && answer.found) {
        buffer_clear(out);
        if (buffer_append(out, answer.value.data, answer.value.length))
            result = error_set(err, MUSTER_E_NOMEM, "get of \"%s\": no room for %zu bytes", key,
                               answer.value.length);
    } else if (!result) {
        result = error_set(err, MUSTER_E_TIMEOUT, "get of \"%s\": not there after %.3f s", key,
                           (double)timeout_ns / (double)NS_PER_S);
    }
    pthread_mutex_unlock(&m->mutex);
    return result;
}

static int kv_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    struct kv_memory *m = ctx;
    struct store_request request = {.operation = STORE_ADD, .key = text_bytes(key), .number = delta};
    struct store_answer answer;
    pthread_mutex_lock(&m->mutex);
    int result = store_step(m->store, &request, &answer, err);
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    if (!result && value)
        *value = answer.number;
    return result;
}

struct kv_store kv_memory_store(struct kv_memory *m)
{
    return (struct kv_store){.set = kv_set, .get = kv_get, .add = kv_add, .ctx = m};
}
