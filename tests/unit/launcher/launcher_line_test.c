/* launcher_line_test.c - lines out of chunks, prefixes, and the last lines of a stream. */
#include <stdio.h>

#include "launcher/output/line.h"
#include "launcher/output/tail.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

struct seen {
    struct buffer bytes; /* everything, in order */
    struct buffer marks; /* '|' after each piece that ends a line, '+' after any other piece */
    size_t longest;
};

static void note(void *context, const char *data, size_t length, bool ends)
{
    struct seen *seen = context;
    assert_true(length > 0);
    assert_true(ends == (data[length - 1] == '\n'));
    buffer_append(&seen->bytes, data, length);
    buffer_append(&seen->marks, data, length);
    buffer_text(&seen->marks, ends ? "|" : "+");
    seen->longest = length > seen->longest ? length : seen->longest;
}

static void seen_free(struct seen *seen)
{
    buffer_free(&seen->bytes);
    buffer_free(&seen->marks);
}

static void lines_and_rests(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct line_splitter s = {0};
    struct line_sink sink = {note, &seen};
    line_feed(&s, "one\ntw", 6, &sink);
    assert_true(line_pending(&s));
    line_feed(&s, "o\n\nthree", 8, &sink);
    line_flush(&s, &sink);
    assert_false(line_pending(&s));
    line_flush(&s, &sink);
    line_feed(&s, " more\n10%\r", 10, &sink);
    line_feed(&s, "20%\r", 4, &sink);
    line_feed(&s, "30%", 3, &sink);
    assert_true(line_pending(&s));
    line_feed(&s, "\r\n", 2, &sink);
    assert_string_equal(seen.marks.data, "one\n|two\n|\n|three+ more\n|10%\r+20%\r+30%\r\n|");
    seen_free(&seen);
    line_free(&s);
}

/* A progress line: its states wait for line_state, which passes on the latest one. */
static void states_of_a_line(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct line_splitter s = {.states = true};
    struct line_sink sink = {note, &seen};
    line_feed(&s, "plain", 5, &sink);
    assert_false(line_has_state(&s) || line_state(&s, &sink));
    line_feed(&s, "\r\none\rline\n", 11, &sink); /* whole: nothing is left out */
    line_feed(&s, "\r 10%\r 20%", 10, &sink);
    assert_true(line_has_state(&s));
    assert_true(line_state(&s, &sink));
    assert_false(line_has_state(&s) || line_state(&s, &sink));
    line_feed(&s, "\r 30%\r 40%\r\r", 12, &sink);
    assert_true(line_state(&s, &sink));
    line_feed(&s, "\r", 1, &sink);
    assert_false(line_state(&s, &sink)); /* without text */
    line_feed(&s, "\r 90%\r100%", 10, &sink);
    line_feed(&s, "\r\nnext\r\n\r5%", 11, &sink);
    assert_true(line_state(&s, &sink));
    line_feed(&s, "\n1\r2\n", 5, &sink); /* the state was passed on: its newline is no record */
    assert_string_equal(seen.marks.data,
                        "plain\r\n|one\rline\n| 20%\r+ 40%\r+100%\r\n|next\r\n|5%\r+1\r2\n|");
    seen_free(&seen);
    line_free(&s);
}

/* The latest state of a progress bar is kept, in bounded memory. A state beyond the limit is passed
 * on in pieces. */
static void many_states(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct line_splitter s = {.states = true};
    struct line_sink sink = {note, &seen};
    char text[32];
    for (int i = 0; i < 100000; i++)
        line_feed(&s, text, (size_t)snprintf(text, sizeof text, "\r%d of 100000", i), &sink);
    assert_int_equal(seen.bytes.length, 0);
    assert_true(s.partial.length <= LINE_PIECE_LIMIT);
    assert_true(line_state(&s, &sink));
    assert_string_equal(seen.marks.data, "99999 of 100000\r+");
    static char long_text[3 * LINE_PIECE_LIMIT / 2];
    memset(long_text, 'x', sizeof long_text);
    line_feed(&s, "\r", 1, &sink);
    line_feed(&s, long_text, sizeof long_text, &sink);
    line_feed(&s, "\n", 1, &sink);
    assert_true(seen.bytes.length >= sizeof long_text);
    seen_free(&seen);
    line_free(&s);
}

/* A small generator, so that a failure can be repeated from its seed. */
static unsigned next(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void random_text(char *text, size_t length, unsigned *seed)
{
    for (size_t i = 0; i < length; i++)
        text[i] = next(seed) % 13 == 0 ? '\n' : (char)('a' + next(seed) % 26);
}

/* However the bytes are cut into reads, the same lines come out. */
static void random_chunks(void **state)
{
    (void)state;
    enum { LENGTH = 3000 };
    char text[LENGTH];
    for (unsigned round = 0; round < 200; round++) {
        unsigned seed = round;
        random_text(text, sizeof text, &seed);
        struct seen whole = {0}, parts = {0};
        struct line_splitter a = {0}, b = {0};
        line_feed(&a, text, sizeof text, &(struct line_sink){note, &whole});
        line_flush(&a, &(struct line_sink){note, &whole});
        for (size_t at = 0; at < sizeof text;) {
            size_t length = 1 + next(&seed) % 40;
            length = length < sizeof text - at ? length : sizeof text - at;
            line_feed(&b, text + at, length, &(struct line_sink){note, &parts});
            at += length;
        }
        line_flush(&b, &(struct line_sink){note, &parts});
        if (strcmp(whole.marks.data, parts.marks.data) != 0)
            fail_msg("seed %u: chunks give other lines", round);
        seen_free(&whole);
        seen_free(&parts);
        line_free(&a);
        line_free(&b);
    }
}

static void long_line_in_bounded_memory(void **state)
{
    (void)state;
    enum { CHUNK = 1000, CHUNKS = 5000 };
    char chunk[CHUNK];
    memset(chunk, 'x', sizeof chunk);
    struct seen seen = {0};
    struct line_splitter s = {0};
    struct line_sink sink = {note, &seen};
    for (int i = 0; i < CHUNKS; i++) {
        line_feed(&s, chunk, sizeof chunk, &sink);
        assert_true(s.partial.capacity <= 2 * LINE_PIECE_LIMIT + 16);
    }
    line_feed(&s, "\n", 1, &sink);
    assert_int_equal(seen.bytes.length, (size_t)CHUNK * CHUNKS + 1);
    assert_true(seen.longest <= LINE_PIECE_LIMIT);
    seen_free(&seen);
    line_free(&s);
}

struct counted {
    size_t bytes;
};

static void count(void *context, const char *data, size_t length, bool ends)
{
    (void)data;
    (void)ends;
    ((struct counted *)context)->bytes += length;
}

/* Without memory a line comes in pieces, but comes. */
static void no_byte_is_lost_without_memory(void **state)
{
    (void)state;
    for (int allowed = 0; allowed < 4; allowed++) {
        struct counted counted = {0};
        struct line_splitter s = {0};
        struct line_sink sink = {count, &counted};
        faults_begin();
        faults_fail_after(allowed);
        for (int i = 0; i < 50; i++)
            line_feed(&s, "some text without an end ", 25, &sink);
        line_feed(&s, "end\n", 4, &sink);
        assert_int_equal(counted.bytes, 50 * 25 + 4);
        line_free(&s);
        assert_int_equal(faults_end(), 0);
    }
}

static void assert_prefix(const char *template, const char *expected)
{
    struct buffer out = {0};
    struct line_names names = {.role = "trainer",
                               .host = "node7",
                               .time = "2026-11-21T16:45:44.123Z",
                               .rank = 13,
                               .local_rank = 5,
                               .node_rank = 1,
                               .restart = 2};
    assert_int_equal(line_prefix(template, &names, &out), 0);
    assert_string_equal(out.data ? out.data : "", expected);
    buffer_free(&out);
}

static void prefixes(void **state)
{
    (void)state;
    assert_prefix(LINE_PREFIX_ONE_NODE, "[trainer5]:");
    assert_prefix(LINE_PREFIX_MANY_NODES, "[node7 trainer13]: ");
    assert_prefix("${role_name}/${rank}.${local_rank}: ", "trainer/13.5: ");
    assert_prefix("${time} ${node_rank} ${restart}|", "2026-11-21T16:45:44.123Z 1 2|");
    assert_prefix("$rank ${world} $", "13 ${world} $"); /* as Python's templates: braces may be left out */
    assert_prefix("$$rank $ranks ${rank $", "$rank $ranks ${rank $");
    assert_prefix("", "");
    assert_true(line_prefix_has_time("a $time b"));
    assert_true(line_prefix_has_time("${rank}${time}"));
    assert_false(line_prefix_has_time("$$time ${timer} time"));
}

static void assert_tail(const char *bytes, const char *expected)
{
    char out[TAIL_BYTES + 1];
    struct tail *t = mem_calloc(1, sizeof *t);
    for (const char *at = bytes; *at; at++)
        tail_add(t, at, 1);
    tail_text(t, out, sizeof out);
    assert_string_equal(out, expected);
    mem_free(t);
    tail_format(bytes, strlen(bytes), false, out, sizeof out);
    assert_string_equal(out, expected);
}

static void tails(void **state)
{
    (void)state;
    assert_tail("", "");
    assert_tail("one\n", "one");
    assert_tail("one\ntwo", "one\ntwo");
    assert_tail("a\r\nb\n", "a\nb");
    assert_tail("10%\r20%\r30%\r\nend\n", "30%\nend");
    assert_tail("\033[1;31mred\033[0m and \007bell\n", "red and ?bell");
    assert_tail("\n\na\n\nb\n", "a\n\nb");
}

static void tail_keeps_the_last(void **state)
{
    (void)state;
    char out[TAIL_BYTES], line[32];
    struct tail *t = mem_calloc(1, sizeof *t);
    for (int i = 0; i < 100000; i++) {
        int length = snprintf(line, sizeof line, "line %d\n", i);
        tail_add(t, line, (size_t)length);
    }
    tail_text(t, out, sizeof out);
    assert_memory_equal(out, "line 99980\n", 11);
    assert_non_null(strstr(out, "\nline 99999"));
    assert_null(strstr(out, "line 99979"));
    /* a line longer than the ring is all there is, and is shown from its middle */
    char block[3 * TAIL_BYTES];
    memset(block, 'y', sizeof block);
    tail_add(t, block, sizeof block);
    tail_text(t, out, sizeof out);
    assert_int_equal(strlen(out), TAIL_BYTES - 1);
    assert_int_equal(strspn(out, "y"), TAIL_BYTES - 1);
    /* a first line that is not whole is left out */
    tail_add(t, "\nshort\n", 7);
    tail_text(t, out, sizeof out);
    assert_string_equal(out, "short");
    char small[4];
    tail_text(t, small, sizeof small);
    assert_string_equal(small, "sho");
    mem_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_rests),
        cmocka_unit_test(states_of_a_line),
        cmocka_unit_test(many_states),
        cmocka_unit_test(random_chunks),
        cmocka_unit_test(long_line_in_bounded_memory),
        cmocka_unit_test(no_byte_is_lost_without_memory),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(tails),
        cmocka_unit_test(tail_keeps_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
