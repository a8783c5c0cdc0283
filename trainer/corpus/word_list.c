/* word_list.c - see word_list.h. */
#include "trainer/corpus/word_list.h"

#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { LIST_LIMIT = 64 << 20 };

static int add_line(struct words *words, const char *line, size_t length, struct hash_set *out,
                    struct muster_error *err)
{
    while (length && strchr(" \t\r", line[length - 1]))
        length--;
    if (!length || *line == '#')
        return 0;
    if (words_split(words, line, length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a list of words");
    if (words->count != 1)
        return error_set(err, MUSTER_E_INVALID, "'%.*s' is %zu words, and a line has one",
                         (int)(length < 40 ? length : 40), line, words->count);
    return hash_set_add(out, words->hash[0]) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a list of words")
               : 0;
}

static int add_lines(struct words *words, const char *path, const char *text, size_t length,
                     struct hash_set *out, struct muster_error *err)
{
    for (int number = 1; length; number++) {
        const char *end = memchr(text, '\n', length);
        const size_t line = end ? (size_t)(end - text) : length;
        if (add_line(words, text, line, out, err) < 0)
            return error_wrap(err, "%s:%d", path, number);
        text += line + (end != NULL);
        length -= line + (end != NULL);
    }
    return 0;
}

int word_list_read(const char *path, struct hash_set *out, uint64_t *hash, struct muster_error *err)
{
    scope_buffer bytes = {0};
    struct words words = {0};
    if (io_read_file(path, LIST_LIMIT, &bytes, err) < 0)
        return -1;
    const char *text = bytes.data ? bytes.data : "";
    *hash = text_hash(*hash, text, bytes.length);
    const size_t mark = text_byte_order_mark(text, bytes.length);
    const int result = add_lines(&words, path, text + mark, bytes.length - mark, out, err);
    words_free(&words);
    return result;
}
