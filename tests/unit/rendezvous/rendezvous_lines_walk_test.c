/* rendezvous_lines_walk_test.c - facts read from random last lines of a worker: the line to show, whether a
 * peer was lost, the class of the failure; one line a seed (walk.h). */
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "rendezvous/failure/failure.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"
#include "tests/support/walk.h"

enum { SEEDS = 300, TEXTS = 480 };

/* Pieces that make an exception's name, a traceback's indent or a sign, or nearly one. */
static void random_lines(struct walk *walk, char *out, size_t size)
{
    static const char *const pieces[] = {"\n",
                                         "\n",
                                         "\n",
                                         "\n  ",
                                         "\n ",
                                         " ",
                                         ": ",
                                         ":",
                                         "A",
                                         "Z",
                                         "a",
                                         "z",
                                         "@",
                                         "[",
                                         "`",
                                         "{",
                                         "9",
                                         "_",
                                         ".",
                                         "Abc",
                                         "xyz",
                                         "Error",
                                         "no",
                                         "OSError",
                                         "W",
                                         "[rank0]: ",
                                         "[rank12]: ",
                                         "[rank",
                                         "]: ",
                                         "\r",
                                         "q.b",
                                         "KeyboardInterrupt",
                                         "Connection reset by peer",
                                         "Broken pipe",
                                         "terminate called",
                                         "CUDA out of memory",
                                         "Fatal Python error: ",
                                         "\n  File \"",
                                         "  what():  ",
                                         "Traceback (most recent call last)"};
    out[0] = '\0';
    for (int64_t left = walk_below(walk, 14); left > 0; left--)
        assert_true(text_append(out, size, "%s", walk_pick(walk, pieces)));
}

static void last_lines_are_read_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    static struct worker_failure failure;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct walk walk = walk_begin(seed);
        for (int i = 0; i < TEXTS; i++) {
            size_t length;
            char lines[600], name[200];
            random_lines(&walk, lines, sizeof lines);
            scope_free char *exact = mem_calloc(strlen(lines) + 1, 1); /* no byte after it is read */
            memcpy(exact, lines, strlen(lines));
            const char *line = failure_informative_line(exact, &length);
            assert_true(line >= exact && line + length <= exact + strlen(exact));
            walk_saw_number(&walk, line - exact);
            walk_saw_number(&walk, (int64_t)length);
            walk_saw_number(&walk, failure_says_peer_gone(exact, 1));
            memset(&failure, 0, sizeof failure);
            (void)snprintf(walk_one_in(&walk, 2) ? failure.tail : failure.message, sizeof lines, "%s", exact);
            failure_excerpt(&failure, name, sizeof name);
            walk_saw_text(&walk, name);
            walk_saw_number(&walk, failure_shows_trouble(&failure));
            walk_saw_number(&walk, failure_class_of(&failure));
        }
        buffer_printf(&text, "%llu: %016llx\n", (unsigned long long)seed, (unsigned long long)walk.digest);
    }
    golden_check("tests/unit/rendezvous/golden/last_lines.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_lines_are_read_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
