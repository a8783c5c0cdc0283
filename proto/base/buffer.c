/* buffer.c - see buffer.h. */
#include "proto/base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"

/* Far from where sizes wrap around. */
static const size_t largest = SIZE_MAX / 4;

char *buffer_reserve(struct buffer *b, size_t more)
{
    if (b->failed)
        return NULL;
    if (more > largest || (b->limit && b->length + more > b->limit)) {
        b->failed = true;
        return NULL;
    }
    size_t wanted = b->length + more + 1;
    if (wanted > b->capacity) {
        size_t grown = b->capacity ? b->capacity : 64;
        while (grown < wanted)
            grown += grown / 2 + 1;
        char *data = mem_realloc(b->data, grown, 1);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->capacity = grown;
    }
    return b->data + b->length;
}

int buffer_append(struct buffer *b, const void *data, size_t length)
{
    char *to = buffer_reserve(b, length);
    if (!to)
        return -1;
    if (length)
        memcpy(to, data, length);
    to[length] = '\0';
    b->length += length;
    return 0;
}

int buffer_text(struct buffer *b, const char *text)
{
    return buffer_append(b, text, strlen(text));
}

int buffer_printf(struct buffer *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *to = length < 0 ? NULL : buffer_reserve(b, (size_t)length);
    if (!to) {
        b->failed = true;
        return -1;
    }
    va_start(args, format);
    (void)vsnprintf(to, (size_t)length + 1, format, args);
    va_end(args);
    b->length += (size_t)length;
    return 0;
}

/* Length of the well-formed UTF-8 sequence at s, 0 where there is none (Unicode 15, table 3-7). */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xC2 && s[0] <= 0xDF   ? 2
               : (s[0] & 0xF0) == 0xE0        ? 3
               : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                              : 0;
    if (n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

int buffer_json_bytes(struct buffer *b, const char *data, size_t length)
{
    buffer_text(b, "\"");
    const unsigned char *s = (const unsigned char *)data, *end = s + length;
    while (s < end) {
        size_t plain = 0, left = (size_t)(end - s), n;
        while (plain < left && is_plain(s[plain]))
            plain++;
        if (plain) {
            buffer_append(b, s, plain);
            s += plain;
        } else if (!(n = utf8_length(s, left))) {
            buffer_text(b, "\\ufffd");
            s++;
        } else if (*s == '"' || *s == '\\') {
            buffer_printf(b, "\\%c", *s++);
        } else if (*s < 0x20 || *s == 0x7F) {
            buffer_printf(b, "\\u%04x", *s++);
        } else {
            buffer_append(b, s, n);
            s += n;
        }
    }
    return buffer_text(b, "\"");
}

/* The well-formed character of n bytes is a control character, and neither a line end nor a tab. */
static bool is_control(const unsigned char *s, size_t n)
{
    if (n == 1)
        return (*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7F;
    return n == 2 && s[0] == 0xC2 && s[1] < 0xA0; /* C1, which terminals obey too */
}

int buffer_printable(struct buffer *b, const char *data, size_t length)
{
    const unsigned char *s = (const unsigned char *)data, *end = s + length;
    while (s < end) {
        const size_t n = utf8_length(s, (size_t)(end - s)), bytes = n ? n : 1;
        if (n && !is_control(s, n))
            buffer_append(b, s, n);
        else
            for (size_t i = 0; i < bytes; i++)
                buffer_printf(b, "\\x%02x", s[i]);
        s += bytes;
    }
    return b->failed ? -1 : 0;
}

int buffer_json_string(struct buffer *b, const char *text)
{
    return text ? buffer_json_bytes(b, text, strlen(text)) : buffer_text(b, "null");
}

int buffer_shell_word(struct buffer *b, const char *text)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*text && strspn(text, safe) == strlen(text))
        return buffer_text(b, text);
    buffer_text(b, "'");
    for (const char *at = text; *at;) {
        size_t plain = strcspn(at, "'");
        buffer_append(b, at, plain);
        at += plain;
        if (*at) {
            buffer_text(b, "'\\''");
            at++;
        }
    }
    return buffer_text(b, "'");
}

void buffer_consume(struct buffer *b, size_t length)
{
    size_t gone = length < b->length ? length : b->length;
    if (!gone)
        return;
    memmove(b->data, b->data + gone, b->length - gone);
    b->length -= gone;
    b->data[b->length] = '\0';
}

void buffer_clear(struct buffer *b)
{
    b->failed = false;
    buffer_consume(b, b->length);
}

void buffer_free(struct buffer *b)
{
    if (!b)
        return;
    mem_free(b->data);
    *b = (struct buffer){.limit = b->limit};
}

char *buffer_take(struct buffer *b)
{
    char *data = NULL;
    if (!b->failed) {
        data = b->data ? b->data : mem_strdup("");
        *b = (struct buffer){.limit = b->limit};
    }
    buffer_free(b);
    return data;
}
