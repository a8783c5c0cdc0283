/* secret.c - see secret.h. */
#include "rendezvous/security/secret.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"

static const char prefix[] = "muster-secret-1:", family[] = "muster-secret-", digits[] = "0123456789abcdef";
static const char context[] = "muster rendezvous 1 ";
enum { PREFIX_LENGTH = sizeof prefix - 1 };

_Static_assert((int)PREFIX_LENGTH + 2 * (int)SECRET_SIZE + 1 == (int)SECRET_TEXT_SIZE, "the line");

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int digit_value(char c)
{
    if (c >= 'A' && c <= 'F')
        c = (char)(c - 'A' + 'a');
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static int wrong_form(const char *text, size_t length, struct muster_error *err)
{
    if (length == 0)
        return error_set(err, MUSTER_E_INVALID, "it is empty; muster secret makes one");
    if (length >= sizeof family - 1 && !strncmp(text, family, sizeof family - 1))
        return error_set(err, MUSTER_E_INVALID, "it is a secret of another version of muster");
    return error_set(err, MUSTER_E_INVALID, "it does not begin with '%s'; muster secret makes one", prefix);
}

int secret_parse(const char *text, size_t length, struct job_secret *out, struct muster_error *err)
{
    while (length && is_blank(text[length - 1]))
        length--;
    while (length && is_blank(*text)) {
        text++;
        length--;
    }
    if (length < PREFIX_LENGTH || strncmp(text, prefix, PREFIX_LENGTH) != 0)
        return wrong_form(text, length, err);
    if (length != SECRET_TEXT_SIZE - 1)
        return error_set(
            err, MUSTER_E_INVALID,
            "%zu characters follow '%s' instead of %d: the secret is truncated or has extra characters",
            length - PREFIX_LENGTH, prefix, 2 * SECRET_SIZE);
    for (size_t i = PREFIX_LENGTH; i < length; i++)
        if (digit_value(text[i]) < 0)
            return error_set(err, MUSTER_E_INVALID, "character %zu is not a hexadecimal digit", i + 1);
    for (int i = 0; i < SECRET_SIZE; i++)
        out->bytes[i] = (unsigned char)(digit_value(text[PREFIX_LENGTH + 2 * i]) << 4 |
                                        digit_value(text[PREFIX_LENGTH + 2 * i + 1]));
    return 0;
}

void secret_format(const struct job_secret *secret, char out[SECRET_TEXT_SIZE])
{
    char *at = out + PREFIX_LENGTH;
    memcpy(out, prefix, PREFIX_LENGTH);
    for (int i = 0; i < SECRET_SIZE; i++) {
        *at++ = digits[secret->bytes[i] >> 4];
        *at++ = digits[secret->bytes[i] & 15];
    }
    *at = '\0';
}

/* ---- libsodium ----
 *
 * libzmq is built with it, so a machine with ZeroMQ has it. Like ZeroMQ it is loaded on demand (zmq_calls.h).
 */

/* member, function */
#define SODIUM_CALLS(X)                                                                                      \
    X(init, sodium_init)                                                                                     \
    X(generichash_init, crypto_generichash_init)                                                             \
    X(generichash_update, crypto_generichash_update)                                                         \
    X(generichash_final, crypto_generichash_final)                                                           \
    X(scalarmult_base, crypto_scalarmult_base)

static struct sodium_calls {
#define SODIUM_CALL_MEMBER(member, function) __typeof__(function) *member;
    SODIUM_CALLS(SODIUM_CALL_MEMBER)
#undef SODIUM_CALL_MEMBER
} sodium_calls; /* constant after sodium_calls_load */

#define SODIUM_CALL_ROW(member, function) LIBRARY_ROW(struct sodium_calls, member, function),
static const struct library_function sodium_functions[] = {SODIUM_CALLS(SODIUM_CALL_ROW)};
#undef SODIUM_CALL_ROW

/* Loads the library, which stays until the process ends. Called by one thread. MUSTER_E_NOT_FOUND: the error
 * names its package. */
static int sodium_calls_load(struct muster_error *err)
{
    static const struct library library = {
        .file = "libsodium.so.23", /* sodium.h of 1.0.x */
        .needs = "a job's secret needs libsodium (package libsodium23)",
        .functions = sodium_functions,
        .count = sizeof sodium_functions / sizeof *sodium_functions,
    };
    if (library_load(&library, &sodium_calls, NULL, err))
        return -1;
    if (sodium_calls.init() < 0) /* further calls do nothing */
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "libsodium does not start: there is no source of random numbers");
    return 0;
}

/* who and job_id: see the head of secret.h. */
static bool derive_seed(const struct job_secret *secret, const char *who, const char *job_id,
                        unsigned char *seed)
{
    crypto_generichash_state state;
    const unsigned char *parts[] = {(const unsigned char *)context, (const unsigned char *)who,
                                    (const unsigned char *)job_id};
    const size_t sizes[] = {sizeof context - 1, strlen(who) + 1, strlen(job_id)};
    bool good = sodium_calls.generichash_init(&state, secret->bytes, SECRET_SIZE, SECRET_KEY_SIZE) == 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        good = good && sodium_calls.generichash_update(&state, parts[i], sizes[i]) == 0;
    good = good && sodium_calls.generichash_final(&state, seed, SECRET_KEY_SIZE) == 0;
    secret_wipe(&state, sizeof state);
    return good;
}

static bool derive_pair(const struct job_secret *secret, const char *who, const char *job_id,
                        unsigned char *public_key, unsigned char *secret_key)
{
    return derive_seed(secret, who, job_id, secret_key) &&
           sodium_calls.scalarmult_base(public_key, secret_key) == 0;
}

int secret_derive(const struct job_secret *secret, const char *job_id, struct job_keys *out,
                  struct muster_error *err)
{
    if (sodium_calls_load(err))
        return -1;
    unsigned char seed[SECRET_KEY_SIZE] = {0};
    const bool good = derive_pair(secret, "server", "", out->server_public, out->server_secret) &&
                      derive_pair(secret, "client", job_id, out->client_public, out->client_secret) &&
                      derive_seed(secret, "store", job_id, seed);
    memcpy(out->store, seed, sizeof out->store);
    secret_wipe(seed, sizeof seed);
    if (good)
        return 0;
    secret_wipe(out, sizeof *out);
    return error_set(err, MUSTER_E_UNSUPPORTED, "libsodium cannot derive the job's keys");
}

void secret_wipe(void *data, size_t size)
{
    explicit_bzero(data, size);
}
