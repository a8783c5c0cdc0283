/* rdzv_conf.c - see config.h. */
#include "launcher/config/config.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

enum value_kind { SECONDS, COUNT, FLAG, STORE_TYPE };

enum { NOWHERE = -1 }; /* an offset: the value is checked but has no effect here */

static const double longest_s = 1e7;

#define AT(member) (int)offsetof(struct rdzv_conf, member)

static const struct conf_key {
    const char *name;
    enum value_kind kind;
    int offset;
    int64_t least; /* least value of a COUNT */
} keys[] = {
    {"join_timeout", SECONDS, AT(join_timeout), 0},
    {"last_call_timeout", SECONDS, AT(last_call_timeout), 0},
    {"timeout", SECONDS, AT(timeout), 0},
    {"rank", COUNT, AT(rank), 0},
    {"is_host", FLAG, AT(is_host), 0},
    {"store_type", STORE_TYPE, NOWHERE, 0},
    {"close_timeout", SECONDS, NOWHERE, 0},
    {"read_timeout", SECONDS, NOWHERE, 0},
    {"keep_alive_interval", SECONDS, NOWHERE, 0},
    {"keep_alive_max_attempt", COUNT, NOWHERE, 1},
    {"heartbeat_timeout", SECONDS, NOWHERE, 0},
    {"use_libuv", FLAG, NOWHERE, 0},
};

struct piece {
    const char *text;
    size_t length;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static struct piece trim(struct piece piece)
{
    while (piece.length && is_blank(piece.text[0])) {
        piece.text++;
        piece.length--;
    }
    while (piece.length && is_blank(piece.text[piece.length - 1]))
        piece.length--;
    return piece;
}

/* Removes the quotes that a manifest's list or a second shell left around the whole list. */
static struct piece unquote(struct piece piece)
{
    char first = piece.length > 1 ? piece.text[0] : 0;
    if ((first == '\'' || first == '"') && piece.text[piece.length - 1] == first)
        return trim((struct piece){piece.text + 1, piece.length - 2});
    return piece;
}

static const struct conf_key *find_key(struct piece name)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i].name) == name.length && !memcmp(keys[i].name, name.text, name.length))
            return &keys[i];
    return NULL;
}

static int read_store_type(const char *text, const char *where, struct muster_error *err)
{
    if (!strcmp(text, "tcp"))
        return 0;
    if (!strcmp(text, "file"))
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: store_type=file is not supported; leave it out and give a host in --rdzv-endpoint "
            "or --master-addr",
            where);
    return error_set(err, MUSTER_E_INVALID, "%s: store_type: '%s' is not tcp", where, text);
}

static int read_value(const struct conf_key *key, const char *text, const char *where, struct rdzv_conf *conf,
                      struct muster_error *err)
{
    void *to = key->offset == NOWHERE ? NULL : (char *)conf + key->offset;
    double seconds;
    int64_t count;
    bool flag;
    switch (key->kind) {
    case SECONDS:
        if (!text_double(text, &seconds) || seconds <= 0 || seconds > longest_s)
            return error_set(err, MUSTER_E_INVALID,
                             "%s: %s: '%s' is not a number of seconds above 0 and up to %g", where, key->name,
                             text, longest_s);
        if (to)
            *(double *)to = seconds;
        return 0;
    case COUNT:
        if (!text_int64(text, &count) || count < key->least || count > INT32_MAX)
            return error_set(err, MUSTER_E_INVALID, "%s: %s: '%s' is not a whole number of %lld to %d", where,
                             key->name, text, (long long)key->least, INT32_MAX);
        if (to)
            *(int64_t *)to = count;
        return 0;
    case FLAG:
        if (!text_bool(text, &flag))
            return error_set(err, MUSTER_E_INVALID, "%s: %s: '%s' is not true or false", where, key->name,
                             text);
        if (to)
            *(int *)to = flag;
        return 0;
    default: /* STORE_TYPE */
        return read_store_type(text, where, err);
    }
}

/* The key that an unknown one may have been meant for, or NULL. */
static const char *nearest_key(struct piece name)
{
    const char *names[sizeof keys / sizeof *keys];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        names[i] = keys[i].name;
    char text[32]; /* a longer one is near to none */
    if (name.length >= sizeof text)
        return NULL;
    (void)snprintf(text, sizeof text, "%.*s", (int)name.length, name.text);
    return text_nearest(text, names, sizeof names / sizeof *names);
}

/* Adds name to the list unless it is in it; hint: NULL, or a key that it is near to. */
static void put_aside(struct buffer *aside, struct piece name, const char *hint)
{
    for (const char *at = aside->length ? aside->data : NULL; at;) {
        size_t length = strcspn(at, ", ");
        if (length == name.length && !memcmp(at, name.text, length))
            return;
        at = strchr(at, ',');
        at = at ? at + 2 : NULL;
    }
    buffer_printf(aside, "%s%.*s%s%s%s", aside->length ? ", " : "", (int)name.length, name.text,
                  hint ? " (did you mean " : "", hint ? hint : "", hint ? "?)" : "");
}

static int read_entry(struct piece entry, const char *where, struct rdzv_conf *conf, struct buffer *aside,
                      struct muster_error *err)
{
    const char *equals = entry.length ? memchr(entry.text, '=', entry.length) : NULL;
    size_t name_length = equals ? (size_t)(equals - entry.text) : entry.length;
    struct piece name = trim((struct piece){entry.text, name_length});
    if (!name.length)
        return error_set(err, MUSTER_E_INVALID, "%s: an entry has no key; it reads key=value,key=value",
                         where);
    struct piece value = {0};
    if (equals)
        value = trim((struct piece){equals + 1, entry.length - name_length - 1});
    if (!value.length)
        return error_set(err, MUSTER_E_INVALID, "%s: '%.*s' has no value; it reads key=value,key=value",
                         where, (int)name.length, name.text);
    const struct conf_key *key = find_key(name);
    if (!key || (key->offset == NOWHERE && key->kind != STORE_TYPE))
        put_aside(aside, name, key ? NULL : nearest_key(name));
    if (!key)
        return 0;
    scope_free char *text = mem_strndup(value.text, value.length);
    return text ? read_value(key, text, where, conf, err) : error_set(err, MUSTER_E_NOMEM, "no memory");
}

int rdzv_conf_parse(const char *text, const char *where, struct rdzv_conf *conf, struct buffer *aside,
                    struct muster_error *err)
{
    const double unset = RDZV_CONF_UNSET;
    *conf = (struct rdzv_conf){unset, unset, unset, RDZV_CONF_UNSET, RDZV_CONF_UNSET};
    struct piece all = unquote(trim((struct piece){text ? text : "", text ? strlen(text) : 0}));
    if (!all.length)
        return 0;
    for (;;) {
        const char *comma = memchr(all.text, ',', all.length);
        size_t length = comma ? (size_t)(comma - all.text) : all.length;
        if (read_entry((struct piece){all.text, length}, where, conf, aside, err) < 0)
            return -1;
        if (!comma)
            break;
        all = (struct piece){comma + 1, all.length - length - 1};
    }
    return aside->failed ? error_set(err, MUSTER_E_NOMEM, "no memory") : 0;
}
