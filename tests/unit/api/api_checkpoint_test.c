/* api_checkpoint_test.c - checkpoints during steps, and going back to a checkpoint, as a user of libmuster.so
 * sees them.
 */
#include "tests/support/cmocka_all.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/include/muster.h"
#include "tests/support/folder.h"

enum { T = 8, VOCABULARY = 24, GLOBAL = 4, VALUES = VOCABULARY * 16 };

struct opened {
    struct muster_model *model;
    struct muster_trainer *trainer;
};

static struct opened open_on(const char *folder)
{
    char setting[100];
    struct muster_error err = {0};
    (void)snprintf(setting, sizeof setting, "training.checkpoint_dir=%s", folder);
    const char *const settings[] = {setting,
                                    "training.checkpoint_keep=2",
                                    "training.micro_batch=1",
                                    "training.global_batch=4",
                                    "training.sequence_length=8",
                                    "training.threads=1",
                                    "training.on_nonfinite=roll_back",
                                    NULL};
    const char *const sizes[] = {"model.layers=1",    "model.channels=16",   "model.heads=2",
                                 "model.positions=8", "model.vocabulary=24", NULL};
    struct opened o = {.model = muster_model_open("gpt2", sizes, &err)};
    o.trainer = o.model ? muster_trainer_open(NULL, o.model, settings, &err) : NULL;
    if (!o.trainer)
        fail_msg("%s", err.text);
    return o;
}

static void close_it(struct opened *o)
{
    muster_trainer_close(&o->trainer);
    muster_model_free(o->model);
}

static void make_folder(char *folder)
{
    (void)snprintf(folder, 40, "/tmp/muster-api-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(folder));
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

static void assert_same_values(struct muster_trainer *t, const float *expected)
{
    float values[VALUES];
    assert_int_equal(muster_trainer_get(t, 0, values, NULL), 0);
    assert_memory_equal(values, expected, sizeof values);
}

static bool is_there(const char *folder, int step)
{
    char path[100];
    (void)snprintf(path, sizeof path, "%s/step-%d/manifest.json", folder, step);
    return access(path, F_OK) == 0;
}

/* ---- tests ---- */

static void one_is_written_at_a_time_behind_steps(void **state)
{
    (void)state;
    char folder[40];
    struct muster_error err = {0};
    make_folder(folder);
    struct opened o = open_on(folder);
    assert_int_equal(muster_trainer_checkpoint_end(o.trainer, 1, &err), 0); /* there is none */
    take_step(o.trainer, 0);
    assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), 1);
    assert_true(muster_trainer_state_now(o.trainer).checkpoint_writing == 1);
    assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), 0); /* again the same step */
    take_step(o.trainer, 1);
    assert_true(muster_trainer_state_now(o.trainer).checkpoint_busy == 1); /* nobody has looked after it */
    assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), -1);
    assert_int_equal(err.code, MUSTER_E_STATE);
    assert_non_null(strstr(err.text, "the checkpoint of step 1 is still being written"));
    assert_int_equal(muster_trainer_checkpoint_end(o.trainer, 1, &err), 1);
    assert_true(muster_trainer_state_now(o.trainer).checkpoint_writing == 0);
    assert_true(muster_trainer_state_now(o.trainer).checkpoint_step == 1);
    assert_true(muster_trainer_state_now(o.trainer).checkpoint_bytes > 0);
    assert_true(muster_trainer_state_now(o.trainer).checkpoint_stall_ns <=
                muster_trainer_state_now(o.trainer).checkpoint_ns);
    /* A checkpoint that waits replaces the checkpoint being written, and is not written twice. */
    assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), 1);
    take_step(o.trainer, 2);
    assert_int_equal(muster_trainer_checkpoint(o.trainer, &err), 1);
    assert_true(is_there(folder, 2) && is_there(folder, 3) && !is_there(folder, 1)); /* two are kept */
    assert_int_equal(muster_trainer_checkpoint(o.trainer, &err), 0);
    take_step(o.trainer, 3);
    assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), 1);
    close_it(&o); /* gives it up */
    assert_false(is_there(folder, 4));
    assert_int_equal(folder_remove(folder), 0);
}

/* Until the files of the newest one are written and the one before is committed. */
static int wait_for_room(struct muster_trainer *t)
{
    struct muster_error err = {0};
    int saved = 0;
    while (muster_trainer_state_now(t).checkpoint_busy > 0) {
        int ended = muster_trainer_checkpoint_end(t, 0, &err);
        assert_true(ended >= 0);
        saved += ended;
    }
    return saved;
}

static void two_are_on_their_way_and_end_in_order(void **state)
{
    (void)state;
    char folder[40];
    struct muster_error err = {0};
    make_folder(folder);
    struct opened o = open_on(folder);
    int saved = 0, together = 0;
    for (int step = 1; step <= 20; step++) {
        take_step(o.trainer, step);
        saved += wait_for_room(o.trainer);
        assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), 1);
        together += muster_trainer_state_now(o.trainer).checkpoint_writing > 1;
        if (saved)
            assert_true(muster_trainer_state_now(o.trainer).checkpoint_step == saved);
    }
    assert_true(together > 0);
    while (muster_trainer_state_now(o.trainer).checkpoint_writing > 0) {
        assert_int_equal(muster_trainer_checkpoint_end(o.trainer, 1, &err), 1);
        saved++;
        assert_true(muster_trainer_state_now(o.trainer).checkpoint_step == saved);
    }
    assert_int_equal(saved, 20);
    assert_true(is_there(folder, 19) && is_there(folder, 20) && !is_there(folder, 18));
    close_it(&o);
    assert_int_equal(folder_remove(folder), 0);
}

static void going_back_leaves_the_samples_since_then_out(void **state)
{
    (void)state;
    char folder[40], report[1000];
    float before[VALUES], after[VALUES];
    struct muster_error err = {0};
    make_folder(folder);
    struct opened o = open_on(folder);
    take_step(o.trainer, 0);
    assert_int_equal(muster_trainer_roll_back(o.trainer, report, sizeof report, &err), 0); /* none yet */
    assert_true(muster_trainer_state_now(o.trainer).steps == 1);
    take_step(o.trainer, 1);
    assert_int_equal(muster_trainer_get(o.trainer, 0, before, &err), 0);
    assert_int_equal(muster_trainer_checkpoint_begin(o.trainer, &err), 1); /* is waited for */
    take_step(o.trainer, 2);
    take_step(o.trainer, 3);
    assert_int_equal(muster_trainer_roll_back(o.trainer, report, sizeof report, &err), 1);
    assert_non_null(strstr(report, "resumed from step 2"));
    assert_same_values(o.trainer, before);
    assert_true(muster_trainer_state_now(o.trainer).steps == 2);
    assert_true(muster_trainer_state_now(o.trainer).taken == 4 * GLOBAL);
    take_step(o.trainer, 4);
    assert_int_equal(muster_trainer_get(o.trainer, 0, after, &err), 0);
    /* The same as a run that never saw samples of steps 2 and 3. */
    struct opened other = open_on(folder);
    assert_int_equal(muster_trainer_resume(other.trainer, NULL, 0, &err), 1);
    take_step(other.trainer, 4);
    assert_same_values(other.trainer, after);
    close_it(&other);
    /* Later checkpoints continue after them. */
    assert_int_equal(muster_trainer_checkpoint(o.trainer, &err), 1);
    close_it(&o);
    other = open_on(folder);
    assert_int_equal(muster_trainer_resume(other.trainer, NULL, 0, &err), 1);
    assert_true(muster_trainer_state_now(other.trainer).steps == 3);
    assert_true(muster_trainer_state_now(other.trainer).taken == 5 * GLOBAL);
    close_it(&other);
    assert_int_equal(folder_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_written_at_a_time_behind_steps),
        cmocka_unit_test(two_are_on_their_way_and_end_in_order),
        cmocka_unit_test(going_back_leaves_the_samples_since_then_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
