/* hosts_message.c - see hosts_message.h. */
#include "launcher/hosts/hosts_message.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static const char head[] = "muster-hosts-1 ";
enum { HEAD_LIMIT = 32 };

static void field(struct buffer *out, char letter, const char *text)
{
    if (!text)
        return;
    buffer_append(out, &letter, 1);
    buffer_append(out, text, strlen(text) + 1);
}

int hosts_message_write(const struct hosts_message *m, struct buffer *out)
{
    scope_buffer body = {0};
    char number[32];
    (void)snprintf(number, sizeof number, "%d", m->first_rank);
    field(&body, 'R', number);
    field(&body, 'S', m->secret);
    field(&body, 'D', m->directory);
    field(&body, 'C', m->subcommand);
    field(&body, 'P', m->ssh);
    for (int i = 0; i < m->hosts.count; i++) {
        scope_free char *name = host_entry_write(&m->hosts.entries[i]);
        scope_free char *host =
            name ? mem_printf("%lld %s", (long long)m->hosts.entries[i].slots, name) : NULL;
        body.failed |= !host;
        field(&body, 'H', host);
    }
    for (size_t i = 0; i < m->env.count; i++)
        field(&body, 'E', m->env.items[i]);
    for (size_t i = 0; i < m->argv.count; i++)
        field(&body, 'A', m->argv.items[i]);
    buffer_printf(out, "%s%zu\n", head, body.length);
    buffer_append(out, body.data, body.length);
    out->failed |= body.failed;
    return out->failed ? -1 : 0;
}

/* --- reading --- */

static int malformed(struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_INVALID,
        "the message of the starting host is malformed: is the same version installed on all hosts?");
}

static int message_take(char **place, const char *text, struct muster_error *err)
{
    if (*place)
        return malformed(err);
    *place = mem_strdup(text);
    return *place ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory");
}

static int take_host(struct hosts_message *m, const char *text, struct muster_error *err)
{
    const char *blank = strchr(text, ' ');
    scope_free char *slots = blank ? mem_strndup(text, (size_t)(blank - text)) : NULL;
    int64_t number;
    if (!blank)
        return malformed(err);
    if (!slots)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    int before = m->hosts.count;
    if (!text_int64(slots, &number) || number < 0 || number > HOST_SLOTS_LIMIT ||
        host_list_parse(blank + 1, &m->hosts, err) < 0 || m->hosts.count != before + 1 ||
        m->hosts.entries[before].slots)
        return malformed(err);
    m->hosts.entries[before].slots = number;
    return 0;
}

static int take_field(struct hosts_message *m, const char *text, struct muster_error *err)
{
    int64_t number;
    switch (*text++) {
    case 'R':
        if (!text_int64(text, &number) || number < 0 || number > HOST_LIST_LIMIT)
            return malformed(err);
        m->first_rank = (int)number;
        return 0;
    case 'S':
        return message_take(&m->secret, text, err);
    case 'D':
        return message_take(&m->directory, text, err);
    case 'C':
        return message_take(&m->subcommand, text, err);
    case 'P':
        return message_take(&m->ssh, text, err);
    case 'H':
        return take_host(m, text, err);
    case 'E':
        if (!strchr(text, '=') || *text == '=')
            return malformed(err);
        return text_list_take(&m->env, mem_strdup(text)) < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory")
                                                             : 0;
    case 'A':
        return text_list_take(&m->argv, mem_strdup(text)) < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory")
                                                              : 0;
    default:
        return malformed(err);
    }
}

/* The body's length and where it begins. 1, 0 or -1. */
static int read_head(const char *data, size_t length, size_t *begin, size_t *bytes)
{
    const char *newline = memchr(data, '\n', length < HEAD_LIMIT ? length : HEAD_LIMIT);
    size_t known = length < sizeof head - 1 ? length : sizeof head - 1;
    if (memcmp(data, head, known) != 0)
        return -1;
    if (!newline)
        return length < HEAD_LIMIT ? 0 : -1;
    if ((size_t)(newline - data) <= sizeof head - 1)
        return -1;
    *bytes = 0;
    for (const char *at = data + sizeof head - 1; at < newline; at++) {
        if (*at < '0' || *at > '9')
            return -1;
        *bytes = *bytes * 10 + (size_t)(*at - '0');
        if (*bytes > HOSTS_MESSAGE_LIMIT)
            return -1;
    }
    *begin = (size_t)(newline - data) + 1;
    return 1;
}

int hosts_message_read(const char *data, size_t length, struct hosts_message *m, size_t *used,
                       struct muster_error *err)
{
    size_t begin = 0, bytes = 0;
    *m = (struct hosts_message){0};
    int state = length ? read_head(data, length, &begin, &bytes) : 0;
    if (state <= 0 || length < begin + bytes)
        return state < 0 ? malformed(err) : 0;
    if (!bytes || data[begin + bytes - 1])
        return malformed(err);
    for (size_t at = begin; at < begin + bytes; at += strlen(data + at) + 1)
        if (take_field(m, data + at, err) < 0)
            return -1;
    *used = begin + bytes;
    return m->hosts.count && m->secret && m->directory && m->subcommand && m->ssh ? 1 : malformed(err);
}

void hosts_message_free(struct hosts_message *m)
{
    mem_free(m->secret);
    mem_free(m->directory);
    mem_free(m->subcommand);
    mem_free(m->ssh);
    text_list_free(&m->env);
    text_list_free(&m->argv);
    host_list_free(&m->hosts);
    *m = (struct hosts_message){0};
}

int hosts_divide(int hosts, int i, int *first, int *count)
{
    int connections = hosts < HOSTS_FANOUT ? hosts : HOSTS_FANOUT;
    if (i < connections) {
        *first = (int)((int64_t)hosts * i / connections);
        *count = (int)((int64_t)hosts * (i + 1) / connections) - *first;
    }
    return connections;
}
