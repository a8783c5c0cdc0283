/* host_list.c - see hosts_message.h. */
#include "launcher/hosts/hosts_message.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

static const char digits[] = "0123456789", blanks[] = " \t\r\v\f";

static bool is_host(const char *name, size_t length)
{
    static const char good[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_@";
    return length && length <= HOST_NAME_LIMIT && *name != '-' && *name != '@' &&
           strspn(name, good) >= length && name[length - 1] != '@';
}

static int host_list_append(struct host_list *list, const char *name, size_t length, int64_t slots,
                            struct muster_error *err)
{
    for (int i = 0; i < list->count; i++)
        if (!strncmp(list->entries[i].name, name, length) && !list->entries[i].name[length]) {
            int64_t before = list->entries[i].slots ? list->entries[i].slots : 1;
            list->entries[i].slots = before + (slots ? slots : 1);
            return list->entries[i].slots <= HOST_SLOTS_LIMIT
                       ? 0
                       : error_set(err, MUSTER_E_LIMIT, "the host %s has more than %d slots",
                                   list->entries[i].name, HOST_SLOTS_LIMIT);
        }
    if (list->count == HOST_LIST_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "more than %d hosts", HOST_LIST_LIMIT);
    struct host_entry *longer = mem_realloc(list->entries, (size_t)list->count + 1, sizeof *longer);
    if (longer)
        list->entries = longer;
    char *copy = longer ? mem_strndup(name, length) : NULL;
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the hosts");
    list->entries[list->count++] = (struct host_entry){copy, slots};
    return 0;
}

static int read_slots(const char *text, size_t length, int64_t *slots, struct muster_error *err)
{
    *slots = 0;
    for (size_t i = 0; i < length && *slots <= HOST_SLOTS_LIMIT; i++)
        *slots = strchr(digits, text[i]) ? *slots * 10 + (text[i] - '0') : INT64_MAX / 2;
    if (length && *slots >= 1 && *slots <= HOST_SLOTS_LIMIT)
        return 0;
    return error_set(err, MUSTER_E_INVALID, "'%.*s' is not a number of slots from 1 to %d",
                     (int)(length < 40 ? length : 40), text, HOST_SLOTS_LIMIT);
}

/* A host as it was written: "node1", "user@node1:8", "[fd00::1]", "user@[fd00::1]:8". */
struct written_host {
    size_t user; /* bytes of "user@" */
    const char *name;
    size_t length;
    const char *rest; /* ":8", or the end */
};

static bool split_host(const char *text, const char *end, struct written_host *out)
{
    const char *at = memchr(text, '@', (size_t)(end - text));
    out->user = at ? (size_t)(at + 1 - text) : 0;
    out->name = text + out->user;
    bool brackets = out->name < end && *out->name == '[';
    const char *close = brackets ? memchr(out->name, ']', (size_t)(end - out->name)) : NULL;
    if (brackets && !close)
        return false;
    out->name += brackets;
    out->rest = close ? close + 1 : memchr(out->name, ':', (size_t)(end - out->name));
    if (!out->rest)
        out->rest = end;
    out->length = (size_t)((close ? close : out->rest) - out->name);
    char address[ADDRESS_TEXT];
    if (!brackets) /* two colons are no slots */
        return is_host(text, out->user + out->length) &&
               (out->rest == end || !memchr(out->rest + 1, ':', (size_t)(end - out->rest - 1)));
    (void)snprintf(address, sizeof address, "%.*s", (int)(out->length < sizeof address ? out->length : 0),
                   out->name);
    return (!out->user || (out->user > 1 && is_host(text, out->user - 1))) && address_is_six(address) &&
           (out->rest == end || *out->rest == ':');
}

/* Adds "host" or "host:8". given: slots that were written apart, 0: none. */
static int take_host(struct host_list *list, const char *text, size_t length, int64_t given,
                     struct muster_error *err)
{
    struct written_host host;
    int64_t slots = 0;
    if (!split_host(text, text + length, &host))
        return error_set(err, MUSTER_E_INVALID,
                         "'%.*s' is not a host: a name, an IPv4 address or an IPv6 address in brackets, with "
                         "user@ in front of it if needed",
                         (int)(length < 60 ? length : 60), text);
    const char *end = text + length;
    if (host.rest < end && read_slots(host.rest + 1, (size_t)(end - host.rest - 1), &slots, err) < 0)
        return -1;
    scope_free char *name =
        mem_printf("%.*s%.*s", (int)host.user, text, (int)host.length, host.name); /* ssh wants no brackets */
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the hosts");
    return host_list_append(list, name, strlen(name), given ? given : slots, err);
}

int host_list_parse(const char *text, struct host_list *list, struct muster_error *err)
{
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (take_host(list, at, length, 0, err) < 0)
            return -1;
        at += length;
        if (!*at)
            return 0;
    }
}

/* --- files --- */

/* key=value after a host; unknown keys are passed over. */
static int read_property(const char *word, size_t length, int64_t *slots, struct muster_error *err)
{
    static const char *const ignored[] = {
        "max_slots=", "max-slots=", "cpu=", "count=", "boards=", "sockets="};
    if (length > 6 && !strncmp(word, "slots=", 6))
        return read_slots(word + 6, length - 6, slots, err);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        if (length > strlen(ignored[i]) && !strncmp(word, ignored[i], strlen(ignored[i])))
            return 0;
    return error_set(err, MUSTER_E_INVALID, "'%.*s' is unknown; a host is followed by slots=N",
                     (int)(length < 40 ? length : 40), word);
}

static int read_line(const char *line, struct host_list *list, struct muster_error *err)
{
    const char *host = line + strspn(line, blanks);
    size_t length = strcspn(host, blanks);
    int64_t given = 0;
    if (!length)
        return 0;
    for (const char *word = host + length; *(word += strspn(word, blanks));) {
        size_t end = strcspn(word, blanks);
        if (read_property(word, end, &given, err) < 0)
            return -1;
        word += end;
    }
    return take_host(list, host, length, given, err);
}

int host_list_parse_file(const char *file, const char *text, size_t length, struct host_list *list,
                         struct muster_error *err)
{
    int number = 0;
    if (memchr(text, 0, length))
        return error_set(err, MUSTER_E_INVALID, "%s is not a text file", file);
    const char *begin = text + text_byte_order_mark(text, length);
    for (const char *at = begin, *end = text + length; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = newline ? (size_t)(newline - at) : (size_t)(end - at);
        scope_free char *line = mem_strndup(at, bytes);
        if (!line)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the hosts");
        line[strcspn(line, "#")] = '\0';
        if (read_line(line, list, err) < 0)
            return error_wrap(err, "%s:%d", file, number + 1);
        at += bytes + 1;
    }
    return list->count ? 0 : error_set(err, MUSTER_E_INVALID, "%s names no host", file);
}

char *host_entry_write(const struct host_entry *entry)
{
    const char *host = host_entry_address(entry);
    int user = (int)(host - entry->name);
    return strchr(host, ':') ? mem_printf("%.*s[%s]", user, entry->name, host) : mem_strdup(entry->name);
}

const char *host_entry_address(const struct host_entry *entry)
{
    const char *at = strrchr(entry->name, '@');
    return at ? at + 1 : entry->name;
}

void host_list_free(struct host_list *list)
{
    for (int i = 0; i < list->count; i++)
        mem_free(list->entries[i].name);
    mem_free(list->entries);
    *list = (struct host_list){0};
}
