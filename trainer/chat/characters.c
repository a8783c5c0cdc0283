/* characters.c - the characters of UTF-8 texts, and blanks around texts. */
#include <string.h>

#include "trainer/chat/jinja_internal.h"

bool jinja_text_is(struct jinja_text text, const char *other)
{
    return text.length == strlen(other) && !memcmp(text.data, other, text.length);
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

size_t jinja_character_at(struct jinja_text text, size_t character)
{
    size_t at = 0;
    for (; character && at < text.length; character--)
        for (at++; at < text.length && continues(text.data[at]); at++)
            ;
    return at;
}

size_t jinja_characters(struct jinja_text text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.length; i++)
        count += !continues(text.data[i]);
    return count;
}

void jinja_add_character(struct buffer *out, uint32_t c)
{
    char bytes[4];
    size_t n = 0;
    if (c < 0x80) {
        bytes[n++] = (char)c;
    } else if (c < 0x800) {
        bytes[n++] = (char)(0xC0 | c >> 6);
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        bytes[n++] = (char)(0xE0 | c >> 12);
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else {
        bytes[n++] = (char)(0xF0 | c >> 18);
        bytes[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    }
    (void)buffer_append(out, bytes, n); /* out remembers a failure */
}

uint32_t jinja_code_at(const char *at, size_t bytes)
{
    const unsigned char first = (unsigned char)at[0];
    uint32_t code = bytes < 2 ? first : first & (bytes == 2 ? 0x1Fu : bytes == 3 ? 0xFu : 0x7u);
    for (size_t i = 1; i < bytes; i++)
        code = code << 6 | ((unsigned char)at[i] & 0x3Fu);
    return code;
}

bool jinja_is_blank(const char *at, size_t left, size_t *bytes)
{
    static const char *const wide[] = {"\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80",
                                       "\xE2\x80\x81", "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84",
                                       "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87", "\xE2\x80\x88",
                                       "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
                                       "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80", NULL};
    *bytes = 1;
    if (!left)
        return false;
    if (at[0] == ' ' || (at[0] >= '\t' && at[0] <= '\r') || (at[0] >= 0x1C && at[0] <= 0x1F))
        return true;
    for (int i = 0; wide[i]; i++) {
        *bytes = strlen(wide[i]);
        if (left >= *bytes && !memcmp(at, wide[i], *bytes))
            return true;
    }
    return false;
}

/* Whether the character at `at` is to be removed, and its bytes. */
static bool strips(const char *at, size_t left, const struct jinja_text *characters, size_t *bytes)
{
    if (!characters)
        return jinja_is_blank(at, left, bytes);
    *bytes = jinja_character_at((struct jinja_text){at, left}, 1);
    return *bytes && memmem(characters->data, characters->length, at, *bytes);
}

struct jinja_text jinja_trim(struct jinja_text text, const struct jinja_text *characters, bool left,
                             bool right)
{
    size_t bytes;
    while (left && text.length && strips(text.data, text.length, characters, &bytes)) {
        text.data += bytes;
        text.length -= bytes;
    }
    while (right && text.length) {
        size_t at = text.length - 1;
        while (at && continues(text.data[at]))
            at--;
        if (!strips(text.data + at, text.length - at, characters, &bytes))
            break;
        text.length = at;
    }
    return text;
}

bool jinja_has_case(struct jinja_text text, bool large)
{
    bool some = false;
    for (size_t i = 0; i < text.length; i++) {
        const char c = text.data[i];
        if (large ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z')
            return false;
        some = some || (large ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z');
    }
    return some;
}
