/* base_property_test.c - buffers, texts and lists of texts against slow models of them, on random input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/base/text_list.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/walk.h"

/* -- UTF-8 -- */

static size_t encode(unsigned code, unsigned char *out)
{
    if (code < 0x80)
        return out[0] = (unsigned char)code, 1;
    if (code < 0x800)
        return out[0] = (unsigned char)(0xC0 | code >> 6), out[1] = (unsigned char)(0x80 | (code & 63)), 2;
    size_t rest = code < 0x10000 ? 2 : 3;
    out[0] = (unsigned char)((rest == 2 ? 0xE0 : 0xF0) | code >> 6 * rest);
    for (size_t i = 1; i <= rest; i++)
        out[i] = (unsigned char)(0x80 | (code >> 6 * (rest - i) & 63));
    return rest + 1;
}

/* The bytes of the character that begins here, 0: none; it is the encoding of what it
 * decodes to, which is no surrogate. */
static size_t character(const unsigned char *s, size_t left)
{
    for (size_t n = 1; n <= 4 && n <= left; n++) {
        unsigned char again[4];
        unsigned code = n == 1 ? s[0] : s[0] & (0xFFu >> (n + 1));
        for (size_t i = 1; i < n; i++)
            code = code << 6 | (s[i] & 63);
        if (code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) && encode(code, again) == n &&
            memcmp(again, s, n) == 0)
            return n;
    }
    return 0;
}

static void json_of(const unsigned char *s, size_t length, struct buffer *out)
{
    buffer_text(out, "\"");
    for (size_t at = 0, n; at < length; at += n ? n : 1) {
        n = character(s + at, length - at);
        if (n == 0)
            buffer_text(out, "\\ufffd");
        else if (s[at] < 0x20 || s[at] == 0x7F)
            buffer_printf(out, "\\u%04x", s[at]);
        else if (s[at] == '"' || s[at] == '\\')
            buffer_append(out, (const char[]){'\\', (char)s[at]}, 2);
        else
            buffer_append(out, s + at, n);
    }
    buffer_text(out, "\"");
}

static void check_json(const unsigned char *s, size_t length)
{
    static struct buffer found, wanted; /* one memory for many */
    buffer_clear(&found);
    buffer_clear(&wanted);
    unsigned char *exact = mem_calloc(length, 1); /* no byte after it is read */
    memcpy(exact, s, length);
    assert_int_equal(buffer_json_bytes(&found, (const char *)exact, length), 0);
    json_of(s, length, &wanted);
    assert_int_equal(found.length, wanted.length);
    assert_memory_equal(found.data, wanted.data, wanted.length + 1);
    mem_free(exact);
    if (length == 0) { /* the last call */
        buffer_free(&found);
        buffer_free(&wanted);
    }
}

static void any_bytes_are_json(void **state)
{
    (void)state;
    static const unsigned char edges[] = {0,    0x1F, 0x20, 0x22, 0x5C, 0x7E, 0x7F, 0x80, 0x8F, 0x90,
                                          0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC,
                                          0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF};
    enum { EDGES = sizeof edges };
    struct walk walk = walk_begin(1);
    for (unsigned pair = 0; pair < 0x10000; pair++)
        check_json((const unsigned char[]){(unsigned char)(pair >> 8), (unsigned char)pair}, 2);
    for (int i = 0; i < EDGES * EDGES * EDGES; i++)
        check_json(
            (const unsigned char[]){edges[i % EDGES], edges[i / EDGES % EDGES], edges[i / EDGES / EDGES]}, 3);
    for (int i = 0; i < 60000; i++) {
        unsigned char s[12];
        size_t length = 1 + (size_t)walk_below(&walk, sizeof s);
        for (size_t k = 0; k < length; k++)
            s[k] = walk_pick(&walk, edges);
        if (walk_one_in(&walk, 2) && length >= 4)
            (void)encode((unsigned)walk_below(&walk, 0x120000), s);
        check_json(s, length);
    }
    check_json((const unsigned char *)"", 0);
}

/* -- texts of a limited size -- */

static void what_does_not_fit_is_cut(void **state)
{
    (void)state;
    struct walk walk = walk_begin(3);
    for (int i = 0; i < 3000; i++) {
        char model[200] = "";
        size_t size = 1 + (size_t)walk_below(&walk, 40), length = 0;
        char *out = mem_calloc(size + 1, 1);
        out[size] = '\x7f'; /* the next byte is not ours */
        for (int k = 0; k < 8; k++) {
            int n = (int)walk_below(&walk, 12);
            bool fits = text_append(out, size, "%.*s%c", n, "abcdefghijkl", 'A' + k);
            assert_int_equal(text_append(out, size, "%s", ""), true);
            (void)snprintf(model + length, sizeof model - length, "%.*s%c", n, "abcdefghijkl", 'A' + k);
            length = strlen(model);
            assert_int_equal(fits, length < size);
            model[size - 1] = '\0';
            length = strlen(model);
            assert_string_equal(out, model);
            assert_int_equal(out[size], '\x7f');
        }
        mem_free(out);
    }
}

/* -- buffers -- */

static void text_that_cannot_be_made_fails(void **state)
{
    (void)state;
    scope_buffer b = {0};
    assert_int_equal(buffer_text(&b, "before"), 0);
    assert_int_equal(buffer_printf(&b, "%lc", (wint_t)0xFFFFFFF), -1); /* no character of any locale */
    assert_true(b.failed);
    assert_string_equal(b.data, "before");
}

static void buffers_hold_what_was_put_in(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct walk walk = walk_begin(seed);
        struct buffer b = {.limit = walk_one_in(&walk, 3) ? (size_t)walk_below(&walk, 300) : 0};
        char model[20000] = "", more[200];
        size_t length = 0;
        bool failed = false;
        for (int i = 0; i < 60; i++) {
            size_t n = (size_t)walk_below(&walk, sizeof more);
            memset(more, 'a' + i % 26, n);
            more[n] = '\0';
            int64_t how = walk_below(&walk, 8);
            bool fits = !failed && (!b.limit || length + n <= b.limit);
            if (how < 4) {
                int result = how == 0   ? buffer_append(&b, more, n)
                             : how == 1 ? buffer_text(&b, more)
                             : how == 2 ? buffer_printf(&b, "%s", more)
                                        : (buffer_reserve(&b, n) ? 0 : -1);
                assert_int_equal(result, fits ? 0 : -1);
                if (how == 3 && fits) { /* all of it may be written */
                    memcpy(b.data + b.length, more, n + 1);
                    b.length += n;
                }
                if (fits)
                    memcpy(model + length, more, n), length += n;
                failed |= !fits;
            } else if (how < 7) {
                size_t gone = walk_one_in(&walk, 4) ? length : n;
                buffer_consume(&b, gone);
                gone = gone < length ? gone : length;
                memmove(model, model + gone, length - gone);
                length -= gone;
            } else {
                buffer_clear(&b);
                length = 0;
                failed = false;
            }
            assert_int_equal(b.length, length);
            assert_int_equal(b.failed, failed);
            if (b.data) {
                assert_memory_equal(b.data, model, length);
                assert_int_equal(b.data[length], 0);
            }
        }
        const size_t limit = b.limit;
        char *taken = buffer_take(&b);
        assert_int_equal(taken != NULL, !failed);
        if (taken)
            assert_int_equal(strlen(taken), length);
        mem_free(taken);
        assert_null(b.data);
        assert_int_equal(b.limit, limit);
    }
}

static int fill(void *context)
{
    (void)context;
    scope_buffer b = {0};
    int result = 0;
    for (int i = 0; i < 20 && !result; i++)
        result = i % 2 ? buffer_printf(&b, "%0100d", i) : buffer_append(&b, "0123456789", 10);
    assert_int_equal(b.failed, result < 0);
    if (result < 0)
        assert_int_equal(buffer_text(&b, ""), -1); /* for good */
    return result;
}

static void buffers_without_memory(void **state)
{
    (void)state;
    faults_sweep(fill, NULL);
    struct buffer b = {0};
    assert_int_equal(buffer_text(&b, "x"), 0);
    assert_null(buffer_reserve(&b, SIZE_MAX)); /* it would wrap */
    assert_true(b.failed);
    buffer_clear(&b);
    assert_null(buffer_reserve(&b, SIZE_MAX - 1));
    buffer_free(&b);
    assert_int_equal(buffer_json_string(&b, NULL), 0);
    assert_string_equal(b.data, "null");
    buffer_free(&b);
    buffer_free(NULL);
}

/* It grows by a half: appending a byte at a time is linear. */
static void buffers_grow_by_more_than_asked(void **state)
{
    (void)state;
    struct buffer b = {0};
    int moves = 0;
    for (int i = 0; i < 100000; i++) {
        size_t before = b.capacity;
        assert_int_equal(buffer_append(&b, "x", 1), 0);
        moves += b.capacity != before;
    }
    assert_in_range(moves, 10, 22);
    buffer_free(&b);
}

/* -- the nearest name -- */

static char folded(char c)
{
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* By the whole table. */
static size_t edits(const char *a, const char *b)
{
    static size_t d[80][80];
    size_t n = strnlen(a, 64), m = strnlen(b, 64);
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (folded(a[i - 1]) != folded(b[j - 1]));
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) &&
                folded(a[i - 2]) == folded(b[j - 1]) && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

static void the_nearest_name_has_the_fewest_edits(void **state)
{
    (void)state;
    struct walk walk = walk_begin(3);
    for (int round = 0; round < 6000; round++) {
        char words[6][100];
        const char *names[5];
        for (int i = 0; i < 6; i++) {
            int64_t most = round % 10 ? 8 : 70, length = walk_below(&walk, most) + (round % 10 ? 0 : 28);
            for (int64_t k = 0; k < length; k++)
                words[i][k] = "ab_A-c"[walk_below(&walk, 6)];
            words[i][length] = '\0';
            if (i > 0)
                names[i - 1] = words[i];
        }
        const char *wanted = NULL;
        size_t fewest = strlen(words[0]) / 2 + 1; /* nearer than half of it */
        for (int i = 0; i < 5; i++)
            if (edits(words[0], names[i]) < fewest) {
                wanted = names[i];
                fewest = edits(words[0], names[i]);
            }
        char *exact = mem_strdup(words[0]); /* no byte outside of it is read */
        assert_ptr_equal(text_nearest(exact, names, 5), wanted);
        mem_free(exact);
    }
    assert_null(text_nearest("a", NULL, 0));
}

/* -- lists -- */

static void a_list_is_an_environment(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct walk walk = walk_begin(seed);
        scope_text_list list = {0};
        int values[40];
        size_t names = 0;
        memset(values, -1, sizeof values);
        assert_null(text_list_value(list.items, "N1"));
        for (int i = 0; i < 150; i++) {
            int name = (int)walk_below(&walk, 40);
            char as_text[16], value[16];
            (void)snprintf(as_text, sizeof as_text, "N%d", name);
            (void)snprintf(value, sizeof value, "%d", i);
            assert_int_equal(text_list_set(&list, as_text, value), 0);
            names += values[name] < 0;
            values[name] = i;
            assert_int_equal(list.count, names);
            assert_null(list.items[list.count]);
            for (int k = 0; k < 40; k++) {
                (void)snprintf(as_text, sizeof as_text, "N%d", k);
                const char *found = text_list_value(list.items, as_text);
                assert_int_equal(found ? atoi(found) : -1, values[k]);
            }
        }
        assert_null(text_list_value(list.items, "N")); /* a part of a name */
    }
}

static int build_list(void *context)
{
    (void)context;
    scope_text_list list = {0};
    for (int i = 0; i < 20; i++)
        if (text_list_take(&list, mem_printf("A%d=x", i)) < 0)
            return -1;
    for (int i = 0; i < 20; i++)
        if (text_list_set(&list, "A3", "y") < 0 || text_list_set(&list, i % 2 ? "B" : "C", "z") < 0)
            return -1;
    text_list_free(&list);
    assert_null(list.items);
    assert_int_equal(list.count + list.room, 0);
    char **items = NULL;
    text_list_free_items(items);
    return 0;
}

static void lists_without_memory(void **state)
{
    (void)state;
    faults_sweep(build_list, NULL);
    scope_text_list list = {0};
    assert_int_equal(text_list_take(&list, NULL), -1);
    assert_null(list.items);
    text_list_free(NULL);
}

/* -- numbers -- */

static void byte_counts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value; /* -1: it is none */
    } rows[] = {{"0", 0},
                {"7", 7},
                {"7b", 7},
                {"7B", 7},
                {"7k", 7 << 10},
                {"7KB", 7 << 10},
                {"7M", 7 << 20},
                {"7MiB", 7 << 20},
                {"7g", INT64_C(7) << 30},
                {"7T", INT64_C(7) << 40},
                {"7TiB", INT64_C(7) << 40},
                {"8388607T", INT64_C(8388607) << 40},
                {"8388608T", -1},
                {"9223372036854775807", INT64_MAX},
                {"9223372036854775808", -1},
                {"7i", -1},
                {"7iB", -1},
                {"7KK", -1},
                {"7 K", -1},
                {"K", -1},
                {"", -1},
                {"+7", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t value = -1;
        assert_int_equal(text_bytes(rows[i].text, &value), rows[i].value >= 0);
        assert_int_equal(value, rows[i].value);
    }
}

static void byte_counts_for_people(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {999, "999 B"},
                {-999, "-999 B"},
                {1000, "0.98 KB"},
                {-1000, "-0.98 KB"},
                {10 << 10, "10.0 KB"},
                {(10 << 10) - 11, "9.99 KB"},
                {1000 << 10, "0.98 MB"},
                {INT64_C(5) << 40, "5.00 TB"},
                {INT64_C(5) << 50, "5.00 PB"},
                {INT64_C(5000) << 50, "5000.0 PB"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32];
        assert_string_equal(text_format_bytes(text, sizeof text, rows[i].bytes), rows[i].text);
    }
}

static void numbers(void **state)
{
    (void)state;
    static const char *const none[] = {"",    " 1",  "1 ",    "1x",     "x",   "inf",
                                       "nan", "0x1", "1e999", "-1e999", "--1", "."};
    double number = 7;
    int64_t whole = 7;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_false(text_double(none[i], &number));
        assert_false(text_int64(none[i], &whole));
    }
    assert_true(number == 7 && whole == 7);
    assert_true(text_double("-2.5e1", &number) && number == -25);
    assert_true(text_int64("-9223372036854775808", &whole) && whole == INT64_MIN);
    assert_false(text_int64("-9223372036854775809", &whole));
    assert_int_equal(text_row("a 9007199254740991 kB", "a"),
                     INT64_C(9007199254740991) * 1024); /* the last to fit */
    assert_int_equal(text_row("a 9007199254740992 kB", "a"), INT64_C(9007199254740992));
    /* FNV-1a's published numbers */
    assert_true(text_hash(TEXT_HASH_START, "", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(text_hash(TEXT_HASH_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(text_hash(TEXT_HASH_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_cannot_be_made_fails),
        cmocka_unit_test(what_does_not_fit_is_cut),
        cmocka_unit_test(any_bytes_are_json),
        cmocka_unit_test(buffers_hold_what_was_put_in),
        cmocka_unit_test(buffers_without_memory),
        cmocka_unit_test(buffers_grow_by_more_than_asked),
        cmocka_unit_test(the_nearest_name_has_the_fewest_edits),
        cmocka_unit_test(a_list_is_an_environment),
        cmocka_unit_test(lists_without_memory),
        cmocka_unit_test(byte_counts),
        cmocka_unit_test(byte_counts_for_people),
        cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
