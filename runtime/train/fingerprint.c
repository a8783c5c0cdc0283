/* fingerprint.c - see fingerprint.h. */
#include "runtime/train/fingerprint.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"

struct field {
    const char *name, *meaning;
    size_t offset;
    bool text;
};

static const struct field fields[] = {
#define NUMBER_ROW(name, meaning) {#name, meaning, offsetof(struct fingerprint, name), false},
#define TEXT_ROW(name, meaning)   {#name, meaning, offsetof(struct fingerprint, name), true},
    FINGERPRINT_NUMBERS(NUMBER_ROW) FINGERPRINT_TEXTS(TEXT_ROW)
#undef NUMBER_ROW
#undef TEXT_ROW
};
enum { FIELD_COUNT = sizeof fields / sizeof *fields };

static const char *show_field(const struct field *field, const struct fingerprint *fingerprint, char *out,
                              size_t size)
{
    const char *at = (const char *)fingerprint + field->offset;
    if (field->text)
        return at;
    int value;
    memcpy(&value, at, sizeof value);
    (void)snprintf(out, size, "%d", value); /* an int fits */
    return out;
}

static int format_field(const struct field *field, const struct fingerprint *fingerprint, struct buffer *out)
{
    char number[16];
    return buffer_printf(out, "%s=%s\n", field->name, show_field(field, fingerprint, number, sizeof number));
}

int fingerprint_format(const struct fingerprint *fingerprint, struct buffer *out)
{
    for (size_t i = 0; i < FIELD_COUNT; i++)
        if (format_field(&fields[i], fingerprint, out))
            return -1;
    return 0;
}

int fingerprint_format_machine(const struct fingerprint *fingerprint, struct buffer *out)
{
    static const char *const kept[] = {"positions", "kernels", "dtypes", "blas"};
    for (size_t i = 0, next = 0; i < FIELD_COUNT && next < sizeof kept / sizeof *kept; i++) {
        if (strcmp(fields[i].name, kept[next]) != 0)
            continue;
        next++;
        if (format_field(&fields[i], fingerprint, out))
            return -1;
    }
    return 0;
}

static int read_field(const struct field *field, const char *value, size_t length,
                      struct fingerprint *fingerprint, struct muster_error *err)
{
    char copy[FINGERPRINT_TEXT];
    if (length >= sizeof copy)
        return error_set(err, MUSTER_E_INVALID, "fingerprint field %s is longer than %d bytes", field->name,
                         FINGERPRINT_TEXT - 1);
    memcpy(copy, value, length);
    copy[length] = 0;
    char *at = (char *)fingerprint + field->offset;
    if (field->text) {
        memcpy(at, copy, length + 1);
        return 0;
    }
    int64_t number;
    if (!text_int64(copy, &number) || number < 0 || number > INT_MAX)
        return error_set(err, MUSTER_E_INVALID, "fingerprint field %s is not a count: '%s'", field->name,
                         copy);
    int narrow = (int)number;
    memcpy(at, &narrow, sizeof narrow);
    return 0;
}

int fingerprint_parse(const char *text, struct fingerprint *fingerprint, struct muster_error *err)
{
    struct fingerprint read = {.embedding = "not recorded"};
    bool seen[FIELD_COUNT] = {false};
    while (*text) {
        size_t length = strcspn(text, "\n");
        const char *equal = memchr(text, '=', length);
        size_t name = equal ? (size_t)(equal - text) : length, i = 0;
        while (i < FIELD_COUNT && (strlen(fields[i].name) != name || memcmp(fields[i].name, text, name)))
            i++;
        if (!equal || i == FIELD_COUNT)
            return error_set(err, MUSTER_E_INVALID, "unknown fingerprint field '%.*s'",
                             (int)(name < 40 ? name : 40), text);
        if (read_field(&fields[i], equal + 1, length - name - 1, &read, err))
            return -1;
        seen[i] = true;
        text += length + (text[length] == '\n');
    }
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (!seen[i] && !(fields[i].text && ((const char *)&read)[fields[i].offset]))
            return error_set(err, MUSTER_E_INVALID, "fingerprint field %s (%s) is missing", fields[i].name,
                             fields[i].meaning);
    }
    *fingerprint = read;
    return 0;
}

int fingerprint_compare(const struct fingerprint *wanted, const struct fingerprint *found,
                        struct muster_error *err)
{
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        char a[16], b[16];
        const char *want = show_field(&fields[i], wanted, a, sizeof a),
                   *have = show_field(&fields[i], found, b, sizeof b);
        if (strcmp(want, have))
            return error_set(err, MUSTER_E_REFUSED, "the numerics differ in %s (%s): expected %s, found %s",
                             fields[i].name, fields[i].meaning, want, have);
    }
    return 0;
}
