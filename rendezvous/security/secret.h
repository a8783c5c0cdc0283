/* secret.h - a job's secret as text, and the key pairs of ZeroMQ's CURVE that follow from it.
 *
 * The text is one line, "muster-secret-1:" and 64 hexadecimal digits (256 random bits); blanks and line
 * ends around it do not count, since editors and kubectl add them. Every process with the secret can serve
 * the job and join it: it proves membership of the job, not the identity of a host.
 *
 * Keys: seed(who, job) = BLAKE2b-256 with the secret's 32 bytes as key, over "muster rendezvous 1 ", who,
 * a zero byte and job; a seed is the secret half of an X25519 key pair. The server's pair is
 * seed("server", ""), the clients' is seed("client", job id): a client of another job still recognises the
 * server, which reports "not this job" instead of closing silently. The workers' key is the beginning of
 * seed("store", job id): nothing of the secret follows from it. */
#ifndef MUSTER_RENDEZVOUS_SECURITY_SECRET_H
#define MUSTER_RENDEZVOUS_SECURITY_SECRET_H

#include <stddef.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SECRET_SIZE = 32,
    SECRET_TEXT_SIZE = 16 + 2 * SECRET_SIZE + 1,
    SECRET_KEY_SIZE = 32,
    SECRET_STORE_KEY_SIZE = 16
};

struct job_secret {
    unsigned char bytes[SECRET_SIZE];
};

struct job_keys {
    unsigned char server_public[SECRET_KEY_SIZE], server_secret[SECRET_KEY_SIZE];
    unsigned char client_public[SECRET_KEY_SIZE], client_secret[SECRET_KEY_SIZE];
    unsigned char store[SECRET_STORE_KEY_SIZE]; /* the workers', for muster's own keys in the store */
};

/* Whether text[0..length) is a job secret; MUSTER_E_INVALID holds the reason and never shows any of it. */
int secret_parse(const char *text, size_t length, struct job_secret *out, struct muster_error *err);
/* The line, without line end; the caller wipes it. */
void secret_format(const struct job_secret *secret, char out[SECRET_TEXT_SIZE]);
/* Loads libsodium: not for a job without a secret. */
int secret_derive(const struct job_secret *secret, const char *job_id, struct job_keys *out,
                  struct muster_error *err);
/* Overwrites with zeros, which no optimiser leaves out. */
void secret_wipe(void *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
