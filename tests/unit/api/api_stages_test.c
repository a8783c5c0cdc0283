/* api_stages_test.c - trainers of a training in stages, as a user of libmuster.so opens them: the state that
 * a stage takes of a checkpoint of the stage before, which it refuses, and going back. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/include/muster.h"
#include "tests/support/folder.h"

enum { T = 8, VOCABULARY = 24, GLOBAL = 4, VALUES = VOCABULARY * 16, STEPS = 3 };

static char folder[FOLDER_PATH];

static int setup(void **state)
{
    (void)state;
    return folder_make(folder, "api-stages");
}

static int teardown(void **state)
{
    (void)state;
    return folder_remove(folder);
}

struct opened {
    struct muster_model *model;
    struct muster_trainer *trainer;
};

/* more: a setting of the stage's own. */
static struct opened open_stage(int stage, int64_t follows, const char *more)
{
    char setting[100];
    struct muster_error err = {0};
    (void)snprintf(setting, sizeof setting, "training.checkpoint_dir=%s", folder);
    const char *const settings[] = {setting,
                                    "training.checkpoint_keep=9",
                                    "training.micro_batch=1",
                                    "training.global_batch=4",
                                    "training.sequence_length=8",
                                    "training.threads=1",
                                    "training.steps=6",
                                    "training.schedule=linear",
                                    "training.warmup_steps=1",
                                    more,
                                    NULL};
    const char *const sizes[] = {"model.layers=1",    "model.channels=16",   "model.heads=2",
                                 "model.positions=8", "model.vocabulary=24", NULL};
    struct opened o = {.model = muster_model_open("gpt2", sizes, &err)};
    o.trainer = o.model ? muster_trainer_open(NULL, o.model, settings, &err) : NULL;
    if (!o.trainer || (stage >= 0 && muster_trainer_stage(o.trainer, stage, follows, &err) < 0))
        fail_msg("%s", err.text);
    return o;
}

static void close_it(struct opened *o)
{
    muster_trainer_close(&o->trainer);
    muster_model_free(o->model);
}

static void take_step(struct muster_trainer *t, int number)
{
    int32_t tokens[GLOBAL * T], targets[GLOBAL * T];
    struct muster_error err = {0};
    for (int i = 0; i < GLOBAL * T; i++) {
        tokens[i] = (number * 7 + i * 5) % VOCABULARY;
        targets[i] = (tokens[i] * 3 + 1) % VOCABULARY;
    }
    assert_int_equal(muster_trainer_train(t, (const void *[]){tokens, targets}, GLOBAL, NULL, &err), 0);
}

static void get(struct muster_trainer *t, float values[VALUES])
{
    assert_int_equal(muster_trainer_get(t, 0, values, NULL), 0);
}

/* Stage 0, with a checkpoint of each step. */
static void train_first(float values[VALUES])
{
    struct muster_error err = {0};
    struct opened o = open_stage(0, -1, NULL);
    assert_int_equal(muster_trainer_resume(o.trainer, NULL, 0, &err), 0);
    for (int i = 0; i < STEPS; i++) {
        take_step(o.trainer, i);
        assert_int_equal(muster_trainer_checkpoint(o.trainer, &err), 1);
    }
    get(o.trainer, values);
    close_it(&o);
}

static void a_stage_begins_from_the_end_of_the_one_before(void **state)
{
    (void)state;
    float before[VALUES], now[VALUES], again[VALUES];
    struct muster_error err = {0};
    char note[40];
    train_first(before);
    struct opened o = open_stage(1, STEPS, NULL);
    assert_int_equal(muster_trainer_resume(o.trainer, NULL, 0, &err), 2);
    get(o.trainer, now);
    assert_memory_equal(now, before, sizeof now);
    assert_true(muster_trainer_state_now(o.trainer).steps == STEPS &&
                muster_trainer_state_now(o.trainer).taken == 0 &&
                muster_trainer_state_now(o.trainer).stage_first_step == STEPS);
    take_step(o.trainer, 7);
    const double rate = muster_trainer_state_now(o.trainer).learning_rate;
    get(o.trainer, now);
    /* back to its begin: values, moments and the place in the schedule */
    assert_int_equal(muster_trainer_roll_back(o.trainer, NULL, 0, &err), 1);
    assert_true(muster_trainer_state_now(o.trainer).steps == STEPS);
    take_step(o.trainer, 7);
    get(o.trainer, again);
    assert_memory_equal(again, now, sizeof now);
    assert_true(muster_trainer_state_now(o.trainer).learning_rate == rate);
    assert_int_equal(muster_trainer_checkpoint(o.trainer, &err), 1);
    assert_true(muster_checkpoint_noted(folder, "stage", note, sizeof note, &err) > 0);
    assert_string_equal(note, "1 3 0");
    close_it(&o);
    /* Its own checkpoint is resumed from, whether or not the end of the stage before is known. */
    for (int64_t follows = -1; follows <= STEPS; follows += STEPS + 1) {
        o = open_stage(1, follows, NULL);
        assert_int_equal(muster_trainer_resume(o.trainer, NULL, 0, &err), 1);
        assert_true(muster_trainer_state_now(o.trainer).steps == STEPS + 1 &&
                    muster_trainer_state_now(o.trainer).stage_first_step == STEPS);
        get(o.trainer, again);
        assert_memory_equal(again, now, sizeof now);
        close_it(&o);
    }
}

static void a_checkpoint_of_another_stage_is_refused(void **state)
{
    (void)state;
    float values[VALUES];
    struct muster_error err = {0};
    train_first(values);
    static const struct {
        int stage;
        int64_t follows;
        const char *text;
        double found;
    } cases[] = {
        {1, -1, "of stage 1 of a training in stages", 0},
        {1, STEPS - 1, "of stage 1 of a training in stages", 0}, /* the newest one is not its end */
        {2, STEPS, "of stage 1 of a training in stages", 0},
        {-1, -1, "training.stages is not set", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened o = open_stage(cases[i].stage, cases[i].follows, NULL);
        /* one by one, since there are older ones */
        for (int step = 1; step <= 2 && !i; step++) {
            char one[64];
            (void)snprintf(one, sizeof one, "%s/step-%d", folder, step);
            assert_int_equal(folder_remove(one), 0);
        }
        assert_int_equal(muster_trainer_resume(o.trainer, NULL, 0, &err), -1);
        assert_int_equal(err.code, MUSTER_E_REFUSED);
        assert_non_null(strstr(err.text, cases[i].text));
        if (cases[i].stage >= 0)
            assert_true(muster_trainer_state_now(o.trainer).stage_found == cases[i].found);
        close_it(&o);
    }
}

static void moments_are_kept_where_they_are_wanted(void **state)
{
    (void)state;
    float before[VALUES], values[3][VALUES];
    struct muster_error err = {0};
    static const char *const more[] = {"training.stage_moments=reset", "training.stage_moments=keep",
                                       "training.frozen=h.0.*"};
    train_first(before);
    for (int i = 0; i < 3; i++) {
        struct opened o = open_stage(1, STEPS, more[i]);
        assert_int_equal(muster_trainer_resume(o.trainer, NULL, 0, &err), 2);
        take_step(o.trainer, 7);
        get(o.trainer, values[i]);
        close_it(&o);
    }
    assert_memory_not_equal(values[0], values[1], sizeof *values);
    /* the step after three others, at the rate of the first step */
    struct opened o = open_stage(0, -1, NULL);
    assert_int_equal(muster_trainer_resume(o.trainer, NULL, 0, &err), 1);
    struct opened first = open_stage(1, STEPS, NULL);
    assert_int_equal(muster_trainer_resume(first.trainer, NULL, 0, &err), 2);
    take_step(first.trainer, 7);
    assert_int_equal(muster_trainer_set(o.trainer, "learning_rate",
                                        muster_trainer_state_now(first.trainer).learning_rate, &err),
                     0);
    take_step(o.trainer, 7);
    get(o.trainer, before);
    assert_memory_equal(before, values[1], sizeof before);
    close_it(&first);
    close_it(&o);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char note[4];
    struct opened o = open_stage(-1, -1, NULL);
    assert_int_equal(muster_trainer_stage(o.trainer, -1, -1, &err), -1);
    assert_int_equal(muster_trainer_stage(o.trainer, 0, 5, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    take_step(o.trainer, 0);
    assert_int_equal(muster_trainer_stage(o.trainer, 0, -1, &err), -1);
    assert_int_equal(err.code, MUSTER_E_STATE);
    close_it(&o);
    assert_int_equal(muster_checkpoint_noted(folder, "stage", note, sizeof note, &err), 0);
    assert_string_equal(note, "");
    assert_int_equal(muster_checkpoint_noted(folder, "stage", note, 0, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stage_begins_from_the_end_of_the_one_before, setup, teardown),
        cmocka_unit_test_setup_teardown(a_checkpoint_of_another_stage_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(moments_are_kept_where_they_are_wanted, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
