/* stage_override_test.c - keys of a stage on the command line: in place of the stage's own, next to them,
 * in its mapping data; and errors, with the number and the way out. */
#include <string.h>

#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "trainer/formats/formats.h"
#include "trainer/formats/stages.h"

static const char text[] =
    "{\"training\": {\"checkpoint_dir\": \"kept\", \"steps\": 5, \"stages\": [{\"name\": \"one\", "
    "\"steps\": 3, \"learning_rate\": 0.5}, {\"epochs\": 2, \"data\": {\"path\": \"b\", "
    "\"text_key\": \"t\"}}]}, \"data\": {\"path\": \"a\"}}";

static int read_with(char *const *sets, int count, struct formats_settings *settings,
                     struct muster_error *err)
{
    return formats_parse("t.json", text, strlen(text), sets, count, 1, settings, err);
}

static void keys_of_one_stage(void **state)
{
    static char *const sets[] = {"training.stages.0.learning_rate=0.25",
                                 "training.stages[1].data.path=c",
                                 "training.stages.1.steps=7",
                                 "training.stages.1.epochs=0",
                                 "training.stages.0.name=first",
                                 "training.stages.0.learning_rate=1e-3",
                                 "training.stages.1.frozen=[a.*, 'b,c']"};
    enum { SETS = sizeof sets / sizeof *sets };
    struct formats_settings settings;
    struct muster_error err = {0};
    struct train_config one, two;
    char *name;
    (void)state;
    if (read_with(sets, SETS, &settings, &err) < 0 ||
        stages_settings(&settings.config, 0, &one, &name, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(name, "first");
    assert_true(one.learning_rate == 1e-3); /* the last one */
    assert_int_equal(one.steps, 3);
    assert_string_equal(one.path, "a");
    mem_free(name);
    if (stages_settings(&settings.config, 1, &two, &name, &err) < 0)
        fail_msg("%s", err.text);
    assert_null(name);
    assert_string_equal(two.path, "c");
    assert_string_equal(two.text_key, "t");
    assert_int_equal(two.steps, 7);
    assert_string_equal(two.frozen[0], "a.*");
    assert_string_equal(two.frozen[1], "b,c");
    assert_null(two.frozen[2]);
    train_config_free(&one);
    train_config_free(&two);
    formats_free(&settings);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        char *set;
        const char *error;
    } rows[] = {
        {"training.stages.2.steps=1",
         "--set training.stages.2.steps: there is no stage 2: the files have 2, numbered from 0"},
        {"training.stages.one.steps=1", "write a stage by its number from 0, e.g. --set training.stages.1."},
        {"training.stages.1=1", "write a stage by its number from 0"},
        {"training.stages.1.=1", "write a stage by its number from 0"},
        {"training.stages[1.steps=1", "write a stage by its number from 0"},
        {"training.stages.1.steps", "write a stage by its number from 0"},
        {"training.stages.99999999999999999999.steps=1", "there is no stage "},
        {"training.stages.1.stepz=1", "--set training.stages.1.stepz: training.stages[1]: unknown key "
                                      "'training.stepz' of a stage; did you "
                                      "mean 'training.steps'?"},
        {"training.stages.1.steps=many", "--set training.stages.1.steps: training.stages[1]: training.steps"},
        {"training.stages.0.output=x", "is a setting of the whole training"},
        {"training.stages.1.data.label_key=l", "training.stages[1]: data.label_key has no effect"},
        {"training.stages.0.frozen=[*]", "training.frozen:1:"},
        {"training.stages.0.name=", "the name of a stage is a text"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct formats_settings settings;
        struct muster_error err = {0};
        if (!read_with(&rows[i].set, 1, &settings, &err))
            fail_msg("%s is taken", rows[i].set);
        if (!strstr(err.text, rows[i].error))
            fail_msg("%s: '%s' instead of '%s'", rows[i].set, err.text, rows[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_one_stage),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
