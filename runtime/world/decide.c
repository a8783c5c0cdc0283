/* decide.c - see decide.h. A decision has a key for each rank, with the rank's text, and a key for the
 * result: "0" and a text, or the code of an error and its text. */
#include "runtime/world/decide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { KEY_BYTES = 256 };

struct decision_keys {
    char base[KEY_BYTES / 2], text[KEY_BYTES];
};

static int open_keys(const struct agree_options *o, struct decision_keys *keys, struct muster_error *err)
{
    int64_t use;
    const int length = snprintf(keys->text, KEY_BYTES, "%s/decide/uses-by-%d", o->key, o->rank);
    if (length > KEY_BYTES / 2)
        return error_set(err, MUSTER_E_LIMIT, "the key %.100s... is too long for a decision", o->key);
    if (o->store->add(o->store->ctx, keys->text, 1, &use, err))
        return -1;
    (void)snprintf(keys->base, sizeof keys->base, "%s/decide/%lld", o->key, (long long)use); /* fits */
    return 0;
}

static const char *key_of(struct decision_keys *keys, int rank)
{
    (void)snprintf(keys->text, KEY_BYTES, "%s/%d", keys->base, rank); /* fits */
    return keys->text;
}

static const char *key_decided(struct decision_keys *keys)
{
    (void)snprintf(keys->text, KEY_BYTES, "%s/decided", keys->base); /* fits */
    return keys->text;
}

static int end_text(struct buffer *text, struct muster_error *err)
{
    return buffer_append(text, "", 1) < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory for a decision") : 0;
}

static int gather(const struct agree_options *o, struct decision_keys *keys, const char *mine,
                  struct buffer *got, const char **texts, struct muster_error *err)
{
    texts[0] = mine;
    for (int rank = 1; rank < o->size; rank++) {
        if (o->store->get(o->store->ctx, key_of(keys, rank), &got[rank], o->timeout_ns, err))
            return error_wrap(err, "rank %d", rank);
        if (end_text(&got[rank], err))
            return -1;
        texts[rank] = got[rank].data;
    }
    return 0;
}

static int apply_rule(const struct agree_options *o, struct decision_keys *keys, const char *mine,
                      decide_rule *rule, void *context, struct buffer *decision, struct muster_error *err)
{
    const size_t size = (size_t)o->size;
    scope_free const char **texts = mem_calloc(size, sizeof(const char *));
    scope_free struct buffer *got = mem_calloc(size, sizeof(struct buffer));
    if (!texts || !got)
        return error_set(err, MUSTER_E_NOMEM, "no memory for what %d ranks say", o->size);
    const int result = gather(o, keys, mine, got, texts, err) ||
                       rule(context, texts, o->size, decision, err) || end_text(decision, err);
    for (size_t i = 0; i < size; i++)
        buffer_free(&got[i]);
    return result ? -1 : 0;
}

/* The rule's error, too: the others wait for it. */
static int publish(const struct agree_options *o, struct decision_keys *keys, int failed,
                   const struct buffer *decision, const struct muster_error *why, struct muster_error *err)
{
    scope_buffer text = {0};
    if (failed)
        buffer_printf(&text, "%d %s", (int)why->code, why->text);
    else
        buffer_printf(&text, "0 %s", decision->data);
    if (text.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a decision");
    return o->store->set(o->store->ctx, key_decided(keys), text.data, text.length, err);
}

static int read_decided(const struct buffer *text, struct buffer *decision, struct muster_error *err)
{
    char *rest;
    const long code = strtol(text->data, &rest, 10);
    rest += *rest == ' ';
    if (code)
        return error_set(err, (enum muster_error_code)code, "%s", rest);
    buffer_clear(decision);
    return buffer_append(decision, rest, strlen(rest) + 1) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a decision")
               : 0;
}

int decide_together(const struct agree_options *o, const char *mine, decide_rule *rule, void *context,
                    struct buffer *decision, struct muster_error *err)
{
    struct muster_error local = {0}, *e = err ? err : &local;
    struct decision_keys keys;
    scope_buffer text = {0};
    buffer_clear(decision);
    if (!o->store || o->size < 2)
        return rule(context, &mine, 1, decision, e) || end_text(decision, e) ? -1 : 0;
    if (open_keys(o, &keys, e))
        return -1;
    if (o->rank == 0) {
        const int failed = apply_rule(o, &keys, mine, rule, context, decision, e);
        return publish(o, &keys, failed, decision, e, failed ? NULL : e) || failed ? -1 : 0;
    }
    if (o->store->set(o->store->ctx, key_of(&keys, o->rank), mine, strlen(mine), e))
        return -1;
    if (o->store->get(o->store->ctx, key_decided(&keys), &text, o->timeout_ns, e))
        return error_wrap(e, "what rank 0 decides");
    return end_text(&text, e) || read_decided(&text, decision, e) ? -1 : 0;
}
