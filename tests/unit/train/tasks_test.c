/* Tasks of lm-evaluation-harness: requests of a row, mistakes by their line, figures with ties. */
#include <math.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "trainer/tasks/tasks.h"

static struct task *parse(enum task_kind kind, const char *text, struct muster_error *err)
{
    return task_parse(kind, "t.jsonl", text, strlen(text), err);
}

#define HELLASWAG                                                                                            \
    "{\"activity_label\":\"Ice\",\"ctx_a\":\"A  man [x] is.\",\"ctx_b\":\"hE  \",\"endings\":[\" runs "      \
    "[title] ok\","                                                                                          \
    "\"sits\"],\"label\":\"1\"}\n"
#define ARC                                                                                                  \
    "{\"question\":\"Why?\",\"choices\":{\"text\":[\"aa\",\"b\"],\"label\":[\"1\",\"2\"]},\"answerKey\":"    \
    "\"2\"}\n"

static void rows_become_requests(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct task *t = parse(TASK_HELLASWAG, "\n" HELLASWAG "  \n", &err);
    if (!t)
        fail_msg("%s", err.text);
    assert_int_equal(t->requests, 2);
    assert_string_equal(t->request[0].context, "Ice: A man is. He");
    assert_string_equal(t->request[0].continuation, " runs. ok");
    assert_int_equal(t->request[1].characters, 4);
    assert_true(t->row[0].gold == 1 && t->row[0].line == 2);
    task_destroy(t);
    t = parse(TASK_ARC, ARC, &err);
    assert_string_equal(t->request[1].context, "Question: Why?\nAnswer:");
    assert_string_equal(t->request[1].continuation, " b");
    assert_int_equal(t->row[0].gold, 1);
    task_destroy(t);
    t = parse(TASK_LAMBADA, "{\"text\":\"a b  c\"}\n{\"text\":\"one\"}", &err);
    assert_string_equal(t->request[0].context, "a b");
    assert_string_equal(t->request[0].continuation, "  c"); /* the context's blank is the continuation's */
    assert_string_equal(t->request[1].context, "");
    assert_string_equal(t->request[1].continuation, " one");
    task_destroy(t);
    task_destroy(NULL);
    assert_int_equal(task_by_name("arc"), TASK_ARC);
    assert_int_equal(task_by_name(""), TASK_NONE);
}

static void mistakes_name_their_line(void **state)
{
    (void)state;
    static const struct {
        enum task_kind kind;
        const char *text, *says;
    } cases[] = {
        {TASK_LAMBADA, "{\"text\":\"a b\"}\n{\"texts\":1}", "t.jsonl:2: a row of lambada: it has no text"},
        {TASK_LAMBADA, "\n\n", "there is no row of lambada"},
        {TASK_LAMBADA, "[1]", "t.jsonl:1"},
        {TASK_ARC, "{\"question\":\"x\"}", "it has no question, choices or answerKey"},
        {TASK_ARC,
         "{\"question\":\"x\",\"choices\":{\"text\":[\"a\"],\"label\":[\"1\"]},\"answerKey\":\"A\"}",
         "answerKey is the label of no choice"},
        {TASK_ARC, "{\"question\":\"x\",\"choices\":{\"text\":[1],\"label\":[\"1\"]},\"answerKey\":\"A\"}",
         "a choice has no text"},
        {TASK_HELLASWAG, ARC, "it has no activity_label"},
        {TASK_HELLASWAG,
         "{\"activity_label\":\"a\",\"ctx_a\":\"b\",\"ctx_b\":\"c\",\"endings\":[\"d\"],\"label\":\"1\"}",
         "label is no number of an ending"},
        {TASK_HELLASWAG,
         "{\"activity_label\":\"a\",\"ctx_a\":\"b\",\"ctx_b\":\"c\",\"endings\":[3],\"label\":0}",
         "an ending is no text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        assert_null(parse(cases[i].kind, cases[i].text, &err));
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
    }
}

static void figures_are_the_harness_s(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct task *t = parse(TASK_ARC, ARC ARC ARC, &err);
    /* likeliest by sum, by character; a tie is the first choice's */
    struct task_result r = task_score(t, (const double[]){-3, -2, -3, -3, -2, -1.5}, NULL);
    assert_true(fabs(r.acc - 2.0 / 3) < 1e-12 && fabs(r.acc_stderr - 1.0 / 3) < 1e-12);
    assert_true(r.acc_norm == 0 && r.acc_norm_stderr == 0 && isnan(r.perplexity));
    task_destroy(t);
    t = parse(TASK_LAMBADA, "{\"text\":\"a b\"}\n{\"text\":\"a c\"}", &err);
    r = task_score(t, (const double[]){-1, -3}, (const bool[]){true, false});
    assert_true(r.acc == 0.5 && fabs(r.perplexity - exp(2)) < 1e-12 && isnan(r.acc_norm));
    task_destroy(t);
    t = parse(TASK_LAMBADA, "{\"text\":\"a b\"}", &err);
    assert_true(isnan(task_score(t, (const double[]){-1}, (const bool[]){true}).acc_stderr));
    task_destroy(t);
}

static int parse_once(void *context)
{
    (void)context;
    struct task *t = parse(TASK_HELLASWAG, HELLASWAG, NULL);
    task_destroy(t);
    return t ? 0 : -1;
}

static void survives_no_memory(void **state)
{
    (void)state;
    faults_sweep(parse_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_requests),
        cmocka_unit_test(mistakes_name_their_line),
        cmocka_unit_test(figures_are_the_harness_s),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
