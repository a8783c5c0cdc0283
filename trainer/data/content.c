/* content.c - see walk.h. */
#include "trainer/data/walk.h"

#include <string.h>

#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/chat/chat.h"
#include "trainer/data/documents.h"
#include "trainer/data/token_file.h"

#define TO_LINES "write its rows as lines of JSON, such as datasets.Dataset.from_file(FILE).to_json(OUT)"
#define UNPACK   "unpack it"

/* The first row that matches counts. */
static const struct signature {
    size_t at;
    const char *bytes;
    size_t length;
    const char *what, *advice;
} signatures[] = {
    {0, "PAR1", 4, "Parquet", TO_LINES},
    {0, "ARROW1", 6, "Arrow", TO_LINES},
    {0, "\xFF\xFF\xFF\xFF", 4, "Arrow", TO_LINES},
    {0, "FEA1", 4, "Feather of version 1", TO_LINES},
    {0, "\x1F\x8B", 2, CONTENT_PACKED " gzip", UNPACK},
    {0, "\x28\xB5\x2F\xFD", 4, CONTENT_PACKED " zstd", UNPACK},
    {0, "PK\x03\x04", 4, "a ZIP archive", "unpack it"},
    {0,
     "\xFD"
     "7zXZ",
     5, "packed by xz", "unpack it"},
    {0, "7z\xBC\xAF\x27\x1C", 6, "a 7z archive", "unpack it"},
    {0, "BZh", 3, "packed by bzip2", "unpack it"},
    {257, "ustar", 5, "a tar archive", "unpack it"},
    {0, "\xFF\xFE\x00\x00", 4, "UTF-32", "convert it, such as by `iconv -f UTF-32 -t UTF-8`"},
    {0, "\x00\x00\xFE\xFF", 4, "UTF-32", "convert it, such as by `iconv -f UTF-32 -t UTF-8`"},
    {0, "\xFF\xFE", 2, "UTF-16", "convert it, such as by `iconv -f UTF-16 -t UTF-8`"},
    {0, "\xFE\xFF", 2, "UTF-16", "convert it, such as by `iconv -f UTF-16 -t UTF-8`"},
    {0, "%PDF-", 5, "a PDF", "extract its text, such as by pdftotext"},
    {0, "\x93NUMPY", 6, "an array of NumPy", NULL},
    {0, "\x89HDF", 4, "HDF5", NULL},
    {0, "SQLite format 3", 15, "a database of SQLite", NULL},
    {0,
     "\x7F"
     "ELF",
     4, "a program", NULL},
    {0, "\x89PNG", 4, "a picture", NULL},
    {0, "\xFF\xD8\xFF", 3, "a picture", NULL},
};
enum { SIGNATURES = sizeof signatures / sizeof *signatures };

/* UTF-16 without a byte order mark: half of the bytes of ASCII text are NUL, all at even or all at odd
 * places. */
static bool is_utf16(const char *start, size_t length)
{
    size_t nul[2] = {0, 0};
    for (size_t i = 0; i < length; i++)
        nul[i & 1] += start[i] == '\0';
    return length >= 8 && ((nul[0] > length / 3 && !nul[1]) || (nul[1] > length / 3 && !nul[0]));
}

static size_t skip_blanks(const char *text, size_t at, size_t length)
{
    while (at < length && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    return at;
}

static json_t *first_line_object(const char *text, size_t length, bool *cut)
{
    const char *end = memchr(text, '\n', length);
    *cut = !end;
    return json_loadb(text, end ? (size_t)(end - text) : length, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                      NULL);
}

static enum content_kind json_kind(const char *text, size_t length, bool whole)
{
    const size_t at = skip_blanks(text, 0, length);
    if (at == length || (text[at] != '{' && text[at] != '['))
        return CONTENT_TEXT;
    const size_t next = skip_blanks(text, at + 1, length);
    const char inside = next < length ? text[next] : '\0';
    if (text[at] == '[') /* "[]" and "[1]" in a text are text */
        return inside == '{' || (inside == '"' && memchr(text + next + 1, '"', length - next - 1))
                   ? CONTENT_ARRAY
                   : CONTENT_TEXT;
    if (inside != '"' && inside != '}')
        return CONTENT_TEXT;
    bool cut;
    GUARD(guard_json) json_t *first = first_line_object(text + at, length - at, &cut);
    if (json_is_object(first) || (cut && !whole))
        return CONTENT_LINES; /* the first line may be longer than CONTENT_BYTES */
    GUARD(guard_json) json_t *all = whole ? json_loadb(text + at, length - at, 0, NULL) : NULL;
    /* A text may begin with a brace; an object over several lines has a key and a colon. */
    const char *quote = memchr(text + next + 1, '"', length - next - 1);
    const size_t colon = quote ? skip_blanks(text, (size_t)(quote - text) + 1, length) : length;
    return all || (colon < length && text[colon] == ':') ? CONTENT_OBJECT : CONTENT_TEXT;
}

struct content content_of(const char *start, size_t length, bool whole)
{
    if (length >= 4 && token_file_is_shard(start))
        return (struct content){.kind = CONTENT_SHARD};
    for (int i = 0; i < SIGNATURES; i++) {
        const struct signature *s = &signatures[i];
        if (length >= s->at + s->length && !memcmp(start + s->at, s->bytes, s->length))
            return (struct content){!strcmp(s->what, "Parquet") ? CONTENT_PARQUET
                                    : !strcmp(s->what, "Arrow") ? CONTENT_ARROW
                                                                : CONTENT_OTHER,
                                    s->what, s->advice};
    }
    /* Pickles of Python begin with a protocol from 2 to 5; older protocols look like text. */
    if (length > 2 && (unsigned char)start[0] == 0x80 && start[1] >= 2 && start[1] <= 5 && start[2])
        return (struct content){CONTENT_OTHER, "a pickle of Python", NULL};
    if (is_utf16(start, length))
        return (struct content){CONTENT_OTHER, "UTF-16",
                                "convert it, such as by `iconv -f UTF-16LE -t UTF-8`"};
    if (memchr(start, '\0', length))
        return (struct content){CONTENT_OTHER, "binary", NULL};
    const size_t mark = text_byte_order_mark(start, length);
    return (struct content){.kind = json_kind(start + mark, length - mark, whole)};
}

bool content_has_text(const char *start, size_t length, const char *text_key)
{
    bool cut;
    const size_t at = skip_blanks(start, text_byte_order_mark(start, length), length);
    GUARD(guard_json) json_t *first = first_line_object(start + at, length - at, &cut);
    return json_is_string(json_object_get(first, text_key)) || chat_is(first, text_key) ||
           (json_is_string(json_object_get(first, DOCUMENTS_PROMPT)) &&
            json_is_string(json_object_get(first, DOCUMENTS_COMPLETION)));
}
