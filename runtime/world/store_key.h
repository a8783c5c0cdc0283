/* store_key.h - the key that a process of a job with a secret has from its launcher. */
#ifndef MUSTER_RUNTIME_WORLD_STORE_KEY_H
#define MUSTER_RUNTIME_WORLD_STORE_KEY_H

#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/mac.h"

/* 1: key is filled; 0: the launcher gives none. MUSTER_E_INVALID: MUSTER_STORE_KEY_FD is not such a file. */
int store_key_read(const char *(*get)(void *context, const char *name), void *context,
                   unsigned char key[MAC_KEY_SIZE], struct muster_error *err);

#endif
