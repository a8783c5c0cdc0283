/* pipe_test.c - tables of schedules: the built ones for any number of ranks, parts and micro-batches,
 * PyTorch's own as text, and wrong ones, each with its sentence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/plan/pipe.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_models.h"

static struct pipe_table made(enum pipe_schedule schedule, int ranks, int chunks, int micros, bool train)
{
    struct pipe_table table;
    struct muster_error err = {0};
    if (pipe_table_make(schedule, ranks, chunks, micros, train, &table, &err) < 0)
        fail_msg("%s", err.text);
    return table;
}

/* The table as text, which is read and proved again. */
static struct pipe_table read_back(const struct pipe_table *table)
{
    scope_buffer text = {0};
    struct pipe_table again;
    struct muster_error err = {0};
    for (int rank = 0; rank < table->ranks; rank++, buffer_text(&text, "\n"))
        for (int i = table->first[rank]; i < table->first[rank + 1]; i++)
            buffer_printf(&text, "%s%d%c%d", i > table->first[rank] ? "," : "", table->calls[i].part,
                          "FBIW"[table->calls[i].phase], table -> calls[i].micro);
    if (pipe_table_read("again", text.data, table->parts, 0, &again, &err) < 0)
        fail_msg("%s in\n%s", err.text, text.data);
    return again;
}

static double idle_of(const struct pipe_table *table)
{
    const int calls = table->first[table->ranks];
    scope_free int *end = mem_calloc((size_t)calls, sizeof *end);
    int span = 0;
    assert_int_equal(pipe_table_times(table, end, NULL), 0);
    for (int i = 0; i < calls; i++)
        span = end[i] > span ? end[i] : span;
    return 1 - 3.0 * table->parts * table->micros / ((double)span * table->ranks);
}

static void built_tables_are_right(void **state)
{
    (void)state;
    int tables = 0;
    for (int schedule = 0; schedule < PIPE_TABLE; schedule++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (int chunks = 1; chunks <= (schedule == PIPE_INTERLEAVED ? 4 : 1); chunks++)
                for (int micros = 1; micros <= 19; micros += 1 + micros / 4) {
                    struct pipe_table table = made((enum pipe_schedule)schedule, ranks, chunks, micros, true);
                    struct pipe_table again = read_back(&table);
                    const double formula = (ranks - 1.0) / (chunks * micros + ranks - 1.0),
                                 idle = idle_of(&again);
                    assert_int_equal(again.micros, micros);
                    assert_true(pipe_is_loop(&again) && !pipe_is_split(&again));
                    if (chunks == 1 || micros % ranks == 0)
                        assert_true(fabs(idle - formula) < 1e-9);
                    else
                        assert_true(idle > formula - 1e-9);
                    pipe_table_free(&table);
                    pipe_table_free(&again);
                    tables++;
                }
    print_message("%d tables\n", tables);
}

/* Stage s of p begins with min(m, p - s - 1) forwards, then alternates, then drains. */
static void the_1f1b_table_is_that_of_the_book(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 6; ranks++)
        for (int micros = 1; micros <= 9; micros++) {
            struct pipe_table table = made(PIPE_1F1B, ranks, 1, micros, true);
            for (int rank = 0; rank < ranks; rank++) {
                const struct pipe_call *call = &table.calls[table.first[rank]];
                const int ahead = ranks - 1 - rank < micros ? ranks - 1 - rank : micros;
                for (int i = 0; i < ahead; i++, call++)
                    assert_true(call->phase == PIPE_FORWARD && call->micro == i);
                for (int i = ahead; i < micros; i++, call += 2)
                    assert_true(call[0].phase == PIPE_FORWARD && call[0].micro == i &&
                                call[1].phase == PIPE_BACKWARD && call[1].micro == i - ahead);
                for (int i = micros - ahead; i < micros; i++, call++)
                    assert_true(call->phase == PIPE_BACKWARD && call->micro == i);
            }
            pipe_table_free(&table);
        }
}

static void evaluations_go_forward_alone(void **state)
{
    (void)state;
    struct pipe_table table = made(PIPE_INTERLEAVED, 2, 2, 3, false);
    assert_int_equal(table.first[2], 12);
    for (int i = 0; i < 12; i++)
        assert_int_equal(table.calls[i].phase, PIPE_FORWARD);
    pipe_table_free(&table);
}

static const struct {
    const char *text;
    int parts;
    const char *says; /* NULL: it is right */
} texts[] = {
    /* PyTorch's: interleaved with whole and with split backwards, a V, overlapped calls in one cell */
    {"0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
     "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n",
     4, NULL},
    {"0F0,3F0,3I0,0F1,3F1,3I1,0I0,3W0,0I1,3W1,0W0,0W1\n1F0,2F0,1F1,2F1,2I0,1I0,2I1,1I1,2W0,1W0,2W1,1W1\n", 0,
     NULL},
    {"0F0,3F0,(0F1;3B0)OVERLAP_F_B,3F1,3B1,0I0,0W0,0B1\n1F0,2F0,1F1,(2F1;2B0)OVERLAP_F_B,1B0,2B1,1B1\n", 4,
     NULL},
    {"# idle cells, transfers, blanks\r\n\n0F0, ,0SEND_F0,0F1,,0RECV_B0,0B0,0B1\r\n"
     ",1RECV_F0,1F0,1UNSHARD,1B0,1F1,1B1,",
     2, NULL},
    {"0F0,0B0\n", 0, NULL},
    /* its own 1F1B table counts the last stage's micro-batches from 1 */
    {"0F0,0F1,0B0,0B1,0REDUCE_GRAD\n1F1,1B0,1B1,1F2,1REDUCE_GRAD\n", 2,
     "schedule FILE, rank 1, call 2: 1B0 comes before 1F0"},
    {"0F0,0F1,0B0,0B1\n1F0,1F0,1B0,1F1,1B1\n", 0, "schedule FILE, rank 1, call 2: 1F0 comes twice"},
    {"0F0,0B0\n1F0,1I0,1B0,1W0\n", 0, "schedule FILE, rank 1, call 3: 1B0 comes twice"},
    {"0F0,0B0\n1F0,1W0,1I0\n", 0, "schedule FILE, rank 1, call 2: 1W0 comes before 1I0"},
    {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", 0, "schedule FILE: rank 1 has 3 calls, not 4"},
    {"0F0,0I0\n1F0,1I0,1W0\n", 0, "schedule FILE: rank 0 has 2 calls, not 3"},
    {"0F0,0B0\n8F0,8B0\n", 8, "schedule FILE, rank 1, call 1: 8F0: the model has 8 parts"},
    {"0F0,0B0\n2F0,2B0\n", 0, "schedule FILE: no rank calls part 1 of 3"},
    {"0F0,0B0\n1F0,1B0\n", 4, "schedule FILE: no rank calls part 2 of 4"},
    {"0F0,1F0,1B0,0B0\n1F1,1B1\n", 0, "schedule FILE, rank 1, call 1: part 1 is called by rank 0, too"},
    {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", 0,
     "schedule FILE: deadlock: rank 0 waits for 1B0, which rank 1 calls after 1F1, which waits for 0F1, "
     "which rank 0 "
     "calls after 0B0"},
    {"1F0,0F0,0B0,1B0\n", 0, "deadlock: rank 0 waits for 0F0, which rank 0 calls after 1F0"},
    {"0F0,0X0\n", 0, "schedule FILE, rank 0, call 2: '0X0' is no call"},
    {"0F0,F0\n", 0, "rank 0, call 2: 'F0' is no call"},
    {"0F0,0B\n", 0, "rank 0, call 2: '0B' is no call"},
    {"0F0,0B-1\n", 0, "rank 0, call 2: '0B-1' is no call"},
    {"0F99999999999999999999\n", 0, "rank 0, call 1: '0F99999999999999999999' is no call"},
    {"0F4194304\n", 0, "schedule FILE names micro-batch 4194304"},
    {"(0F0;0B0\n", 0, "rank 0, call 1: '(0F0;0B0' has no closing ')'"},
    {"64F0\n", 0, "at most 64 parts"},
    {"\n # \n", 0, "rank 0, call 1: '#' is no call"},
    {"", 0, "schedule FILE has no ranks: write a line a rank"},
};

static void texts_are_read_and_proved(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct pipe_table table;
        struct muster_error err = {0};
        const int result = pipe_table_read("FILE", texts[i].text, texts[i].parts, 0, &table, &err);
        if (result != (texts[i].says ? -1 : 0) || !strstr(err.text, texts[i].says ? texts[i].says : ""))
            fail_msg("case %zu: %d, '%s'", i, result, err.text);
        if (!result)
            pipe_table_free(&table);
        else
            assert_int_equal(pipe_table_read("FILE", texts[i].text, texts[i].parts, 0, &table, NULL), -1);
    }
}

/* Where the number of parts is not set, a model's layers are the most. */
static void layers_limit_parts(void **state)
{
    (void)state;
    struct pipe_table table;
    struct muster_error err = {0};
    assert_int_equal(pipe_table_read("FILE", "0F0,0B0\n8F0,8B0\n", 0, 8, &table, &err), -1);
    assert_string_equal(err.text, "schedule FILE, rank 1, call 1: 8F0: the model has 8 layers, and so many "
                                  "parts at most");
    assert_int_equal(pipe_table_read("FILE", "0F0,0B0\n8F0,8B0\n", 8, 10, &table, &err), -1);
    assert_non_null(strstr(err.text, "8F0: the model has 8 parts"));
    assert_int_equal(pipe_table_read("FILE", "0F0,0B0\n1F0,1B0\n", 0, 2, &table, &err), 0);
    pipe_table_free(&table);
}

/* A circle of many ranks is cut short. */
static void long_circles_are_told(void **state)
{
    (void)state;
    scope_buffer text = {0};
    struct pipe_table table;
    struct muster_error err = {0};
    for (int rank = 0; rank < 12;
         rank++) /* part 0 waits for the last one's backward of another micro-batch */
        buffer_printf(&text, rank ? "%dF1,%dF0,%dB1,%dB0\n" : "%dF0,%dB0,%dF1,%dB1\n", rank, rank, rank,
                      rank);
    assert_int_equal(pipe_table_read("FILE", text.data, 0, 0, &table, &err), -1);
    assert_non_null(strstr(
        err.text, "deadlock: rank 0 waits for 1B0, which rank 1 calls after 1F1, which waits for 0F1"));
}

/* One call exchanged, repeated or renamed in a right table is found, unless the order is as good. */
static void planted_errors_are_found(void **state)
{
    (void)state;
    uint64_t seed = 7;
    int found = 0, tried = 0;
    for (int i = 0; i < 600; i++) {
        const int ranks = 2 + (int)plan_model_next(&seed, 3), chunks = 1 + (int)plan_model_next(&seed, 2),
                  kind = i % 3;
        struct pipe_table table =
            made(PIPE_INTERLEAVED, ranks, chunks, 1 + (int)plan_model_next(&seed, 6), true);
        const int rank = (int)plan_model_next(&seed, (uint64_t)ranks),
                  calls = table.first[rank + 1] - table.first[rank];
        struct pipe_call *at =
            &table.calls[table.first[rank] + (int)plan_model_next(&seed, (uint64_t)calls - 1)];
        const struct pipe_call kept = *at;
        scope_buffer text = {0};
        struct pipe_table again;
        struct muster_error err = {0};
        if (kind == 0) /* comes twice, and another one never */
            *at = at[1];
        else if (kind == 1)
            at->micro += table.micros;
        else
            at->part = (uint8_t)table.parts;
        for (int r = 0; r < ranks; r++, buffer_text(&text, "\n"))
            for (int c = table.first[r]; c < table.first[r + 1]; c++)
                buffer_printf(&text, "%d%c%d,", table.calls[c].part, "FBIW"[table.calls[c].phase],
                              table.calls[c].micro);
        const int result = pipe_table_read("FILE", text.data, table.parts, 0, &again, &err);
        if (result == 0)
            fail_msg("%d%c%d of rank %d, kind %d, is not found in\n%s", kept.part, "FBIW"[kept.phase],
                     kept.micro, rank, kind, text.data);
        found += strstr(err.text, "schedule FILE") != NULL;
        tried++;
        pipe_table_free(&table);
    }
    assert_int_equal(found, tried);
}

static void figures_are_told(void **state)
{
    (void)state;
    char text[512];
    struct pipe_table table = made(PIPE_INTERLEAVED, 4, 2, 8, true);
    (void)pipe_table_text(&table, text, sizeof text);
    assert_string_equal(text,
                        "4 ranks, 8 parts (a loop), 8 micro-batches, 128 calls: nothing waits for ever; idle "
                        "15.8% with free transfers; rank 0 keeps the most activations, of 11 calls");
    pipe_table_free(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_tables_are_right),       cmocka_unit_test(the_1f1b_table_is_that_of_the_book),
        cmocka_unit_test(evaluations_go_forward_alone), cmocka_unit_test(texts_are_read_and_proved),
        cmocka_unit_test(layers_limit_parts),           cmocka_unit_test(long_circles_are_told),
        cmocka_unit_test(planted_errors_are_found),     cmocka_unit_test(figures_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
