/* heartbeat.h, hang.h and the texts of hang_dump.h: beats in pieces, late ranks, completed work, with a
 * clock that only tests move. */
#include "launcher/policy/heartbeat.h"

#include <stdio.h>
#include <string.h>

#include "launcher/policy/hang.h"
#include "launcher/process/hang_dump.h"
#include "tests/support/cmocka_all.h"

static struct instant at(int64_t seconds)
{
    return (struct instant){seconds * NS_PER_S};
}

static void take(struct heartbeat *beat, const char *text, int64_t seconds)
{
    heartbeat_take(beat, text, strlen(text), at(seconds));
}

static void a_beat_may_come_in_pieces(void **state)
{
    (void)state;
    struct heartbeat beat;
    heartbeat_init(&beat);
    take(&beat, "4", 1);
    assert_false(beat.armed);
    take(&beat, "1\n4", 2);
    assert_true(beat.armed);
    assert_int_equal(beat.step, 41);
    assert_int_equal(beat.last.ns, at(2).ns);
    take(&beat, "2\n43\n", 3);
    assert_int_equal(beat.step, 43);
}

/* Lines of figures are no heartbeats, in whatever pieces they come; a bad one leaves the figures as they
 * were. */
static void figures_are_no_heartbeat(void **state)
{
    (void)state;
    struct heartbeat beat;
    heartbeat_init(&beat);
    take(&beat, "figures/1 loss=2.5 later=7 st", 1);
    assert_false(beat.figures.there);
    take(&beat, "ep_ms=56\n", 2);
    assert_true(beat.figures.there && beat.figures.has[FIGURE_LOSS] && beat.figures.has[FIGURE_STEP_MS]);
    assert_true(beat.figures.value[FIGURE_LOSS] == 2.5 && beat.figures.value[FIGURE_STEP_MS] == 56);
    assert_false(beat.figures.has[FIGURE_MFU]);
    assert_true(!beat.armed && beat.step == -1 && !beat.last.ns);
    static const char *const bad[] = {
        "figures/2 loss=1\n",
        "figures/\n",
        "figures/1 loss\n",
        "figures/1 loss=\n",
        "figures/1 =1\n",
        "figures/1 loss=x\n",
        "figures/1 loss=nan\n",
        "figures/1 loss=1  mfu=1\n",
        "figures/1 loss=1e999\n",
        "figures/1 loss=0x1\n",
        "figures/1 loss=1\tmfu=1\n",
        "figures/1 loss=1111111111111111111111111111111111111111111111111111111\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        take(&beat, bad[i], 3);
        assert_true(beat.figures.value[FIGURE_LOSS] == 2.5 && !beat.armed);
    }
    char line[FIGURES_LINE + 2];
    for (int more = 0; more < 2; more++) { /* as long as may be, and a byte more */
        memset(line, 'a', sizeof line);
        memcpy(line, "figures/1 loss=", 15);
        memcpy(line + 15, more ? "8 " : "9 ", 2);
        memcpy(line + FIGURES_LINE - 2 + more, "=1\n", 3);
        heartbeat_take(&beat, line, FIGURES_LINE + 1 + (size_t)more, at(4));
        assert_true(beat.figures.value[FIGURE_LOSS] == 9);
    }
    take(&beat, "7\nfigures/1\n8\nfigures/1 \n", 5);
    assert_int_equal(beat.step, 8);
    assert_true(beat.armed && beat.last.ns == at(5).ns);
    assert_true(beat.figures.there && !beat.figures.has[FIGURE_LOSS]); /* a line without figures */
}

/* Nor are beats of checkpoints; the last beat counts. */
static void ends_of_checkpoints_are_no_heartbeat(void **state)
{
    (void)state;
    struct heartbeat beat;
    heartbeat_init(&beat);
    take(&beat, "checkpoint/1 saved 40 runs/a\tb", 1);
    assert_false(beat.saved.there);
    take(&beat, " c\n", 2);
    assert_true(beat.saved.there && beat.saved.good && beat.saved.step == 40);
    assert_string_equal(beat.saved.text, "runs/a b c");
    assert_true(!beat.armed && beat.step == -1 && !beat.last.ns);
    static const char *const bad[] = {
        "checkpoint/2 saved 1 a\n",  "checkpoint/1 saved\n",
        "checkpoint/1 saved \n",     "checkpoint/1 saved 1\n",
        "checkpoint/1 saved 1 \n",   "checkpoint/1 saved a b\n",
        "checkpoint/1 lost 1 a\n",   "checkpoint/\n",
        "checkpoint/1 saved -1 a\n", "checkpoint/1 saved 1234567890123456789 a\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        take(&beat, bad[i], 3);
        assert_true(beat.saved.good && beat.saved.step == 40 && !beat.armed);
    }
    take(&beat, "7\ncheckpoint/1 failed 50 No space left on device\n", 5);
    assert_true(beat.saved.there && !beat.saved.good && beat.saved.step == 50 && beat.step == 7);
    assert_string_equal(beat.saved.text, "No space left on device");
    char line[FIGURES_LINE + 50];
    memset(line, 'a', sizeof line);
    memcpy(line, "checkpoint/1 saved 60 ", 22);
    line[sizeof line - 1] = '\n';
    heartbeat_take(&beat, line, sizeof line, at(6));
    assert_true(beat.saved.good && beat.saved.step == 60);
    assert_int_equal(strlen(beat.saved.text), SAVED_TEXT - 1); /* cut */
}

static void a_line_that_is_no_number_beats_without_a_step(void **state)
{
    (void)state;
    static const char *const lines[] = {"\n", "junk\n", "1x\n", "--3\n", "1234567890123456789\n", "5 \n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct heartbeat beat;
        heartbeat_init(&beat);
        take(&beat, "7\n", 1);
        take(&beat, lines[i], 2);
        assert_true(beat.armed);
        assert_int_equal(beat.step, 7);
        assert_int_equal(beat.last.ns, at(2).ns);
        take(&beat, "8\n", 3); /* the next line is read afresh */
        assert_int_equal(beat.step, 8);
    }
}

static void a_negative_step_disarms_until_the_next(void **state)
{
    (void)state;
    struct heartbeat beat;
    heartbeat_init(&beat);
    take(&beat, "7\n-1\n", 1);
    assert_false(beat.armed);
    assert_int_equal(beat.step, 7);
    assert_int_equal(heartbeats_deadline(&beat, 1, NS_PER_S).ns, INSTANT_NEVER.ns);
    take(&beat, "8\n", 2);
    assert_true(beat.armed);
}

static void an_error_that_a_restart_does_not_mend_is_marked(void **state)
{
    (void)state;
    static const char *const others[] = {"fata\n", "fatall\n", "-fatal\n", "1\n", "\n", "fa\ntal\n", "fatal"};
    struct heartbeat beat;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        heartbeat_init(&beat);
        take(&beat, others[i], 1);
        assert_false(beat.fatal);
    }
    heartbeat_init(&beat);
    take(&beat, "7\nfa", 1);
    take(&beat, "tal\n", 2);
    assert_true(beat.fatal && !beat.armed && beat.step == 7);
    assert_string_equal(beat.message, "");
    take(&beat, "8\n", 3); /* it stays */
    assert_true(beat.fatal && beat.armed);
    heartbeat_init(&beat);
    take(&beat, "fatal no\tfile", 1);
    take(&beat, " x: 7\nfatal another\n", 2); /* the first one counts */
    assert_true(beat.fatal);
    assert_string_equal(beat.message, "no file x: 7");
    char line[2 * HEARTBEAT_MESSAGE] = "fatal ";
    memset(line + 6, 'x', sizeof line - 8);
    line[sizeof line - 2] = '\n';
    heartbeat_init(&beat);
    take(&beat, line, 1);
    assert_true(beat.fatal && strlen(beat.message) == HEARTBEAT_MESSAGE - 1);
}

/* One worker for each text; "" never beats. */
static void make(struct heartbeat *beats, const char *const *texts, const int *seconds, int count)
{
    for (int i = 0; i < count; i++) {
        heartbeat_init(&beats[i]);
        take(&beats[i], texts[i], seconds[i]);
    }
}

static void only_who_has_beaten_is_watched(void **state)
{
    (void)state;
    struct heartbeat beats[3];
    make(beats, (const char *const[]){"", "5\n", "5\n"}, (const int[]){0, 10, 12}, 3);
    assert_int_equal(heartbeats_deadline(beats, 3, 0).ns, INSTANT_NEVER.ns);
    assert_int_equal(heartbeats_deadline(beats, 3, 60 * NS_PER_S).ns, at(70).ns);
    assert_int_equal(heartbeats_stalled(beats, 3, 60 * NS_PER_S, at(69)), -1);
    beats[1].over = true; /* it exited 0: its silence is none */
    assert_int_equal(heartbeats_stalled(beats, 3, 60 * NS_PER_S, at(70)), -1);
    assert_int_equal(heartbeats_deadline(beats, 3, 60 * NS_PER_S).ns, at(72).ns);
    assert_int_equal(heartbeats_stalled(beats, 3, 0, at(1000)), -1);
}

static void the_one_furthest_behind_is_named(void **state)
{
    (void)state;
    struct heartbeat beats[4];
    make(beats, (const char *const[]){"42\n", "41\n", "42\n", "42\n"}, (const int[]){10, 12, 11, 65}, 4);
    assert_int_equal(heartbeats_stalled(beats, 4, 60 * NS_PER_S, at(71)), 1);
    assert_true(beats[0].stalled && beats[1].stalled && beats[2].stalled);
    assert_false(beats[3].stalled); /* it still goes on */
    beats[1].step = 42;
    assert_int_equal(heartbeats_stalled(beats, 4, 60 * NS_PER_S, at(71)), 0); /* the longest silence */
}

static void check_format(const char *const *texts, int count, const char *wanted)
{
    static const int seconds[12] = {0};
    struct heartbeat beats[12];
    scope_buffer out = {0};
    make(beats, texts, seconds, count);
    assert_int_equal(heartbeats_format(beats, count, 8, &out), 0);
    assert_string_equal(out.data ? out.data : "", wanted);
}

static void steps_are_grouped(void **state)
{
    (void)state;
    check_format((const char *const[]){"", ""}, 2, "");
    check_format((const char *const[]){"3\n"}, 1, "step 3: rank 8");
    check_format((const char *const[]){"3\n", "3\n", "2\n", "3\n", ""}, 5,
                 "step 2: rank 10; step 3: ranks 8-9, 11; no step: rank 12");
    check_format((const char *const[]){"0\n", "1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "7\n", "8\n"}, 9,
                 "step 0: rank 8; step 1: rank 9; step 2: rank 10; step 3: rank 11; step 4: rank 12; "
                 "step 5: rank 13; step 6: rank 14; step 7: rank 15; ...");
}

static void a_hang_is_asked_about_then_aborted_then_told(void **state)
{
    (void)state;
    struct hang hang = {.deadline = INSTANT_NEVER};
    assert_int_equal(hang_step(&hang, HANG_STALLED, at(100)), HANG_ASK);
    assert_int_equal(hang.state, HANG_ASKING);
    assert_true(instant_reached(at(110), hang.deadline));
    assert_int_equal(hang_step(&hang, HANG_STALLED, at(100)), HANG_NOTHING);
    assert_int_equal(hang_step(&hang, HANG_ANSWERED, at(101)), HANG_ABORT);
    assert_int_equal(hang_step(&hang, HANG_ANSWERED, at(101)), HANG_NOTHING);
    assert_true(hang.deadline.ns > at(101).ns && instant_reached(at(120), hang.deadline));
    assert_int_equal(hang_step(&hang, HANG_GONE, at(102)), HANG_TELL);
    assert_int_equal(hang.state, HANG_WATCHING);
    assert_int_equal(hang.deadline.ns, INSTANT_NEVER.ns);
}

static void nothing_waits_without_a_bound(void **state)
{
    (void)state;
    struct hang hang = {.deadline = INSTANT_NEVER};
    (void)hang_step(&hang, HANG_STALLED, at(100));
    assert_int_equal(hang_step(&hang, HANG_DEADLINE, at(103)), HANG_ABORT);
    assert_int_equal(hang_step(&hang, HANG_DEADLINE, at(120)), HANG_TELL);
    assert_int_equal(hang.state, HANG_WATCHING);
    (void)hang_step(&hang, HANG_STALLED, at(200));
    assert_int_equal(hang_step(&hang, HANG_RESET, at(201)), HANG_NOTHING);
    assert_int_equal(hang.state, HANG_WATCHING);
    assert_int_equal(hang.deadline.ns, INSTANT_NEVER.ns);
    for (int event = 0; event < HANG_EVENT_COUNT; event++)
        if (event != HANG_STALLED)
            assert_int_equal(hang_step(&hang, (enum hang_event)event, at(300)), HANG_NOTHING);
    assert_string_equal(hang_state_name(HANG_ABORTING), "ABORTING");
    assert_string_equal(hang_state_name(HANG_STATE_COUNT), "?");
}

static void threads_are_counted_by_where_they_wait(void **state)
{
    (void)state;
    struct hang_dump_threads threads = {0};
    scope_buffer out = {0};
    hang_dump_count(&threads, "futex_wait_queue", "202 0x7f 0x80 0x0");
    hang_dump_count(&threads, "futex_wait_queue", "202 0x1 0x2");
    hang_dump_count(&threads, "0", "running\n");
    hang_dump_count(&threads, "", "");
    hang_dump_count(&threads, "do_signal_stop\n", "9999 0x0");
    assert_int_equal(hang_dump_format(&threads, &out), 0);
#ifdef __x86_64__
    assert_string_equal(out.data, "5 threads: 2 in futex (futex_wait_queue), 1 running, "
                                  "1 in the kernel or its own code, 1 in system call 9999 (do_signal_stop)");
#endif
    threads = (struct hang_dump_threads){0};
    for (int i = 0; i < 20; i++) {
        char place[16];
        (void)snprintf(place, sizeof place, "place%d", i);
        hang_dump_count(&threads, place, "running");
    }
    buffer_clear(&out);
    assert_int_equal(hang_dump_format(&threads, &out), 0);
    assert_non_null(strstr(out.data, "20 threads: 1 running (place0), "));
    assert_non_null(strstr(out.data, ", 8 elsewhere"));
}

static void a_stack_becomes_one_line(void **state)
{
    (void)state;
    scope_buffer out = {0};
    assert_int_equal(
        hang_dump_format_stack("[<0>] futex_wait+0x10/0x20\n[<0>] uvm_lock+0x1/0x2 [nvidia_uvm]\n", &out), 0);
    assert_string_equal(out.data, "futex_wait < uvm_lock");
    buffer_clear(&out);
    assert_int_equal(hang_dump_format_stack("", &out), 0);
    assert_int_equal(out.length, 0);
}

/* --- from outside --- */

static void look(struct activity *activity, int64_t cpu_ms, uint64_t output, const char *wait,
                 int64_t seconds)
{
    struct activity_sample sample = {.there = true, .cpu_ns = cpu_ms * NS_PER_MS, .output = output};
    (void)snprintf(sample.wait, sizeof sample.wait, "%s", wait);
    activity_take(activity, &sample, at(seconds));
}

static void quiet_workers_hang_together(void **state)
{
    (void)state;
    const int64_t limit = 30 * NS_PER_S;
    struct activity workers[3] = {0};
    assert_int_equal(activities_hung(workers, 3, limit), -1);
    for (int i = 0; i < 3; i++)
        look(&workers[i], 1000, 5, "S futex", 100);
    for (int64_t now = 110; now <= 130; now += 10) { /* watchdog threads: 0.5% */
        assert_int_equal(activities_hung(workers, 3, limit), -1);
        look(&workers[0], 1000 + (now - 100) * 5, 5, "S futex", now);
        look(&workers[1], 1000, 5, "D folio", now);
        look(&workers[2], 1000, 5, "S futex", now);
    }
    assert_int_equal(activities_hung(workers, 3, limit), 1);
    scope_buffer text = {0};
    assert_int_equal(activities_format(workers, 3, 1, 4, &text), 0);
    buffer_append(&text, "", 1);
    assert_string_equal(text.data, "rank 5 waits in D folio, 2 of 2 others in S futex");
    workers[1].over = true; /* the others have the whole limit to follow */
    for (int64_t now = 140; now <= 170; now += 10) {
        for (int i = 0; i < 3; i++)
            look(&workers[i], i == 1 ? now * 1000 : 1150, 5, "S futex",
                 now); /* a helper of its session goes on */
        assert_int_equal(activities_hung(workers, 3, limit), now < 170 ? -1 : 0);
    }
    buffer_clear(&text);
    assert_int_equal(activities_format(workers, 3, 0, 4, &text), 0);
    buffer_append(&text, "", 1);
    assert_string_equal(text.data, "all wait in S futex");
}

/* Each row is a sign of life of the second of two workers 10 s before the limit. */
static void a_sign_of_life_clears_the_node(void **state)
{
    (void)state;
    const int64_t limit = 30 * NS_PER_S;
    static const struct {
        int64_t cpu_ms;
        uint64_t output;
        bool gone;
        int64_t starved_ms;
    } rows[] = {{1101, 5, false, 0}, /* more than 1% of 10 s */
                {900, 5, false, 0},
                {1000, 6, false, 0},
                {1000, 5, true, 0},
                {1000, 5, false, 5001} /* more than half of them */};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct activity workers[2] = {0};
        for (int64_t now = 100; now <= 110; now += 10)
            for (int k = 0; k < 2; k++)
                look(&workers[k], 1000, 5, "S futex", now);
        look(&workers[0], 1000, 5, "S futex", 120);
        struct activity_sample sample = {.there = true,
                                         .cpu_ns = rows[i].cpu_ms * NS_PER_MS,
                                         .starved_ns = rows[i].starved_ms * NS_PER_MS,
                                         .output = rows[i].output,
                                         .wait = "R"};
        activity_take(&workers[1], &sample, at(120));
        if (rows[i].gone)
            activity_take(&workers[1], &(struct activity_sample){0}, at(120));
        look(&workers[0], 1000, 5, "S futex", 130);
        activity_take(&workers[1], &sample, at(130));
        assert_int_equal(activities_hung(workers, 2, limit), -1);
    }
}

/* A hung worker's watchdog threads wait for a processor at each wake, where many others want one. */
static void a_crowded_machine_hides_no_hang(void **state)
{
    (void)state;
    struct activity worker = {0};
    for (int64_t now = 100; now <= 130; now += 10) {
        const struct activity_sample sample = {
            .there = true, .cpu_ns = NS_PER_S, .starved_ns = now * NS_PER_S / 100 * 45, .wait = "R"};
        assert_int_equal(activities_hung(&worker, 1, 30 * NS_PER_S), -1);
        activity_take(&worker, &sample, at(now));
    }
    assert_int_equal(activities_hung(&worker, 1, 30 * NS_PER_S), 0);
    assert_int_equal(activity_probe_starved_ns("12 345 6\n"), 345);
    assert_int_equal(activity_probe_starved_ns(""), 0);
}

static void looks_and_their_times(void **state)
{
    (void)state;
    assert_int_equal(activity_period_ns(NS_PER_S), NS_PER_S / 4);
    assert_int_equal(activity_period_ns(16 * NS_PER_S), 2 * NS_PER_S);
    assert_int_equal(activity_period_ns(3600 * NS_PER_S), 10 * NS_PER_S);
    assert_int_equal(activity_probe_ticks("7 (a) b) S 1 7 7 0 -1 4194560 9 8 7 6 100 20 3 4 20 0 1 0 5 6"),
                     127);
    assert_int_equal(activity_probe_ticks("7 (a) S 1 7 7"), -1);
    assert_int_equal(activity_probe_ticks(""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beat_may_come_in_pieces),
        cmocka_unit_test(quiet_workers_hang_together),
        cmocka_unit_test(a_sign_of_life_clears_the_node),
        cmocka_unit_test(a_crowded_machine_hides_no_hang),
        cmocka_unit_test(looks_and_their_times),
        cmocka_unit_test(a_line_that_is_no_number_beats_without_a_step),
        cmocka_unit_test(figures_are_no_heartbeat),
        cmocka_unit_test(ends_of_checkpoints_are_no_heartbeat),
        cmocka_unit_test(a_negative_step_disarms_until_the_next),
        cmocka_unit_test(an_error_that_a_restart_does_not_mend_is_marked),
        cmocka_unit_test(only_who_has_beaten_is_watched),
        cmocka_unit_test(the_one_furthest_behind_is_named),
        cmocka_unit_test(steps_are_grouped),
        cmocka_unit_test(a_hang_is_asked_about_then_aborted_then_told),
        cmocka_unit_test(nothing_waits_without_a_bound),
        cmocka_unit_test(threads_are_counted_by_where_they_wait),
        cmocka_unit_test(a_stack_becomes_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
