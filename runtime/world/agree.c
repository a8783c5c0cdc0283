/* agree.c - see agree.h. A meeting has two keys: the count of ready ranks, and the verdict. The last rank
 * that becomes ready sets the verdict to "ready"; a rank that fails never counts as ready and sets the
 * verdict to its error, so that the two exclude each other. */
#include "runtime/world/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"

enum { KEY_BYTES = 256 };

struct meeting {
    const struct agree_options *options;
    char ready_key[KEY_BYTES], verdict_key[KEY_BYTES];
};

static int open_meeting(const struct agree_options *o, struct meeting *m, struct muster_error *err)
{
    int64_t use;
    m->options = o;
    int length = snprintf(m->ready_key, KEY_BYTES, "%s/agree/uses-by-%d", o->key, o->rank);
    if (length > KEY_BYTES / 2)
        return error_set(err, MUSTER_E_LIMIT, "the key %.100s... is too long for an agreement", o->key);
    if (o->store->add(o->store->ctx, m->ready_key, 1, &use, err))
        return -1;
    (void)snprintf(m->ready_key, KEY_BYTES, "%s/agree/%lld/ready", o->key, (long long)use);     /* fits */
    (void)snprintf(m->verdict_key, KEY_BYTES, "%s/agree/%lld/verdict", o->key, (long long)use); /* fits */
    return 0;
}

/* The others read the reason from the store; if even that fails they still have their time-out. */
static void publish_error(const struct agree_options *o, const struct muster_error *why)
{
    struct meeting m;
    char text[MUSTER_ERROR_TEXT + 16];
    int length = snprintf(text, sizeof text, "%d %d %s", why->code, o->rank, why->text); /* fits */
    if (!open_meeting(o, &m, NULL))
        (void)o->store->set(o->store->ctx, m.verdict_key, text, (size_t)length, NULL); /* see above */
}

static int read_verdict(const struct buffer *verdict, struct muster_error *err)
{
    static const char ready[] = "ready";
    if (verdict->length == strlen(ready) && !memcmp(verdict->data, ready, strlen(ready)))
        return 0;
    char text[MUSTER_ERROR_TEXT + 16], *rest;
    (void)snprintf(text, sizeof text, "%.*s", (int)verdict->length, verdict->length ? verdict->data : "");
    long code = strtol(text, &rest, 10), rank = strtol(rest, &rest, 10);
    return error_set(err, code > 0 ? (enum muster_error_code)code : MUSTER_E_PEER,
                     "rank %ld cannot go on: %s", rank, rest + (*rest == ' '));
}

static int wait_for_verdict(const struct meeting *m, struct muster_error *err)
{
    const struct agree_options *o = m->options;
    const struct kv_store *s = o->store;
    scope_buffer verdict = {0};
    int64_t ready;
    if (s->add(s->ctx, m->ready_key, 1, &ready, err))
        return -1;
    if (ready == o->size)
        return s->set(s->ctx, m->verdict_key, "ready", strlen("ready"), err);
    if (s->get(s->ctx, m->verdict_key, &verdict, o->timeout_ns, err)) {
        if (!s->add(s->ctx, m->ready_key, 0, &ready, NULL) && ready < o->size)
            return error_wrap(err, "%lld of %d ranks are missing", (long long)(o->size - ready), o->size);
        return -1;
    }
    return read_verdict(&verdict, err);
}

int agree(const struct agree_options *options, int failed, struct muster_error *err)
{
    static const struct muster_error unknown = {MUSTER_E_PEER, "it gives no reason"};
    struct meeting meeting;
    if (!options->store || options->size < 2)
        return failed ? -1 : 0;
    if (failed) {
        publish_error(options, err ? err : &unknown);
        return -1;
    }
    return open_meeting(options, &meeting, err) || wait_for_verdict(&meeting, err) ? -1 : 0;
}
