/* kv_memory.h - the runtime's key-value store in memory, for ranks that are threads of one process. */
#ifndef MUSTER_RENDEZVOUS_STORE_KV_MEMORY_H
#define MUSTER_RENDEZVOUS_STORE_KV_MEMORY_H

#include "proto/include/muster_error.h"
#include "rendezvous/store/kv_store.h"

struct kv_memory;

/* Owned by the caller. NULL only where memory is short. */
struct kv_memory *kv_memory_create(struct muster_error *err);
/* After the last thread is done with it. Accepts NULL. */
void kv_memory_destroy(struct kv_memory *m);
/* The face that its users get; borrows m, and every thread may use its own copy or one for all. */
struct kv_store kv_memory_store(struct kv_memory *m);

#endif
