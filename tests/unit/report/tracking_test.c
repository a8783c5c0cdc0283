/* W&B's framing and cut, MLflow's texts, and which trackers a run is written for. The meaning of the files
 * for their own programs is tests/compat/report/trackers_test.py. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "runtime/config/tracking_choice.h"
#include "trainer/report/report_internal.h"

/* ---- W&B ---- */

static struct crc32 crc;

static struct entry step_entry(int64_t step, double loss)
{
    struct entry entry = {.kind = ENTRY_STEP, .step = step};
    entry_number(&entry, "loss", loss);
    entry_flag(&entry, "skipped", false);
    entry_text(&entry, "text", "no number");
    return entry;
}

/* A file of `steps` rows, whose settings fill several blocks; each entry framed as it is written. */
static void write_log(int steps, size_t setting, struct buffer *file)
{
    scope_buffer settings = {0}, records = {0};
    struct wandb log = {0};
    buffer_text(&settings, "    training.steps=4\n    model.flag=true\n    data.path=");
    for (size_t i = 0; i < setting; i++)
        buffer_text(&settings, "x");
    buffer_text(&settings, "\n");
    const struct wandb_run run = {.id = "abc", .project = "p", .tags = "a,b", .settings = settings.data};
    assert_int_equal(wandb_begin(&log, &run, 5 * NS_PER_S, &records), 0);
    assert_int_equal(wandb_frame(&crc, 0, records.data, records.length, file), 0);
    for (int step = 1; step <= steps; step++) {
        const struct entry entry = step_entry(step, step == 2 ? NAN : 1.0 / step);
        buffer_clear(&records);
        assert_int_equal(wandb_add(&log, &entry, (5 + step) * NS_PER_S, &records), 0);
        scope_buffer framed = {0};
        assert_int_equal(wandb_frame(&crc, (int64_t)file->length, records.data, records.length, &framed), 0);
        buffer_append(file, framed.data, framed.length);
    }
    buffer_clear(&records);
    assert_int_equal(wandb_end(&log, 0, 60 * NS_PER_S, &records), 0);
    scope_buffer framed = {0};
    assert_int_equal(wandb_frame(&crc, (int64_t)file->length, records.data, records.length, &framed), 0);
    buffer_append(file, framed.data, framed.length);
}

/* At every place of a block's end. */
static void records_cross_blocks(void **state)
{
    (void)state;
    crc32_make(&crc);
    for (size_t setting = 32000; setting < 33000; setting += setting < 32400 || setting > 32700 ? 97 : 1) {
        scope_buffer file = {0};
        struct wandb log;
        write_log(3, setting, &file);
        const int64_t kept = wandb_cut(&crc, file.data, file.length, 100, &log);
        assert_true(kept > 32768 && kept < (int64_t)file.length);
        assert_int_equal(log.rows, 3);
        assert_int_equal(log.start_ns, 5 * NS_PER_S);
        assert_int_equal(log.name_count, 3); /* train/global_step, train/loss, train/skipped */
    }
    scope_buffer file = {0};
    struct wandb log;
    write_log(1, 100000, &file); /* a record of four blocks */
    assert_true(wandb_cut(&crc, file.data, file.length, 1, &log) > 100000);
    assert_int_equal(log.rows, 1);
}

static void what_comes_again_is_cut(void **state)
{
    (void)state;
    scope_buffer file = {0};
    struct wandb log, again;
    crc32_make(&crc);
    write_log(6, 10, &file);
    int64_t last = 0;
    for (int step = 0; step <= 7; step++) {
        const int64_t kept = wandb_cut(&crc, file.data, file.length, step, &log);
        assert_int_equal(log.rows, step < 6 ? step : 6);
        assert_true(step > 6 ? kept == last : kept > last);
        assert_int_equal(wandb_cut(&crc, file.data, (size_t)kept, step, &again), kept);
        assert_int_equal(again.records, log.records);
        last = kept;
    }
    /* a kill leaves a part of a record, a disk another byte */
    for (size_t length = 0; length <= file.length; length += 7) {
        const int64_t kept = wandb_cut(&crc, file.data, length, 100, &log);
        assert_true(length < WANDB_BEGIN ? kept == -1 : kept >= WANDB_BEGIN && kept <= (int64_t)length);
    }
    file.data[last - 3] ^= 1;
    assert_true(wandb_cut(&crc, file.data, file.length, 100, &log) < last);
    file.data[1] = 'X';
    assert_int_equal(wandb_cut(&crc, file.data, file.length, 100, &log), -1);
}

/* ---- MLflow ---- */

static void metrics_are_lines(void **state)
{
    (void)state;
    scope_buffer out = {0};
    const struct entry entry = step_entry(7, 0.1), warning = {.kind = ENTRY_WARNING};
    assert_int_equal(mlflow_add(&entry, 1234 * NS_PER_MS, &out), 0);
    assert_int_equal(mlflow_add(&warning, 0, &out), 0);
    assert_string_equal(out.data, "train/loss");
    assert_string_equal(out.data + 11, "1234 0.10000000000000001 7\n");
    static const char lines[] = "1 0.5 1\n2 nan 2\n3 0.25 3\n4 0.1";
    assert_int_equal(mlflow_cut(lines, sizeof lines - 1, 2), 16);
    assert_int_equal(mlflow_cut(lines, sizeof lines - 1, 9), 25);
    assert_int_equal(mlflow_cut(lines, sizeof lines - 1, 0), 0);
    assert_int_equal(mlflow_cut("", 0, 1), 0);
}

static void names_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "it's", "a: b", "", "# no comment", "'quoted'"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        scope_buffer text = {0};
        assert_int_equal(mlflow_experiment_text("1", names[i], "/a b/mlruns", 5, &text), 0);
        scope_free char *name = mlflow_read_value(text.data, "name");
        scope_free char *uri = mlflow_read_value(text.data, "artifact_location");
        assert_string_equal(name, names[i]);
        assert_string_equal(uri, "file:///a%20b/mlruns/1");
        assert_null(mlflow_read_value(text.data, "nam"));
    }
}

/* ---- the choice ---- */

static const char *const *variables;

static const char *variable(const char *name)
{
    for (const char *const *v = variables; *v; v += 2)
        if (!strcmp(*v, name))
            return v[1];
    return NULL;
}

struct choice_case {
    const char *wandb, *project, *mlflow, *folder, *variables[5];
    const char *wandb_folder, *mlflow_store, *chosen_project, *note;
};

static void settings_come_before_variables(void **state)
{
    (void)state;
    static const struct choice_case cases[] = {
        {.wandb = "auto", .variables = {"WANDB_PROJECT", "p", NULL}},
        {.wandb = "auto", .project = "x", .wandb_folder = ".", .chosen_project = "x"},
        {.wandb = "auto",
         .project = "x",
         .folder = "runs",
         .variables = {"WANDB_PROJECT", "p", NULL},
         .wandb_folder = "runs",
         .chosen_project = "x"},
        {.wandb = "offline",
         .folder = "runs",
         .variables = {"WANDB_PROJECT", "p", "WANDB_DIR", "d", NULL},
         .wandb_folder = "d",
         .chosen_project = "p"},
        {.wandb = "off", .project = "x"},
        {.wandb = "offline", .variables = {"WANDB_DISABLED", "true", NULL}},
        {.wandb = "offline", .variables = {"WANDB_DISABLED", "false", NULL}, .wandb_folder = "."},
        {.wandb = "offline", .variables = {"WANDB_MODE", "Disabled", NULL}},
        {.wandb = "offline", .variables = {"WANDB_MODE", "dryrun", NULL}, .wandb_folder = "."},
        {.wandb = "offline",
         .variables = {"WANDB_MODE", "online", NULL},
         .wandb_folder = ".",
         .note = "WANDB_MODE is online"},
        {.mlflow = "auto", .mlflow_store = "mlruns"},
        {.mlflow = "auto", .folder = "runs", .mlflow_store = "runs/mlruns"},
        {.mlflow = "auto",
         .variables = {"MLFLOW_TRACKING_URI", "file:///a%20b/c", NULL},
         .mlflow_store = "/a b/c"},
        {.mlflow = "auto", .variables = {"MLFLOW_TRACKING_URI", "file:store", NULL}, .mlflow_store = "store"},
        {.mlflow = "auto", .variables = {"MLFLOW_TRACKING_URI", "./store", NULL}, .mlflow_store = "./store"},
        {.mlflow = "auto",
         .variables = {"MLFLOW_TRACKING_URI", "http://h:5000", NULL},
         .mlflow_store = "mlruns",
         .note = "MLFLOW_TRACKING_URI is http://h:5000"},
        {.mlflow = "/else",
         .variables = {"MLFLOW_TRACKING_URI", "http://h:5000", NULL},
         .mlflow_store = "/else"},
        {.mlflow = "file://localhost/a", .mlflow_store = "/a"},
        {.mlflow = "off"},
        {.variables = {"MLFLOW_TRACKING_URI", "file:///a", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct choice_case *c = &cases[i];
        const struct tracking_wishes wishes = {
            .wandb = c->wandb, .project = c->project, .mlflow = c->mlflow, .log_folder = c->folder};
        struct tracking_choice choice;
        scope_buffer notes = {0};
        variables = c->variables;
        assert_int_equal(tracking_check(&wishes, NULL), 0);
        assert_int_equal(tracking_choose(&wishes, variable, &choice, &notes, NULL), 0);
        const char *const pairs[][2] = {{choice.wandb_folder, c->wandb_folder},
                                        {choice.mlflow_store, c->mlflow_store},
                                        {choice.project, c->chosen_project}};
        for (size_t k = 0; k < 3; k++) {
            if (pairs[k][1])
                assert_string_equal(pairs[k][0], pairs[k][1]);
            else
                assert_null(pairs[k][0]);
        }
        assert_true(c->note ? notes.data && !strncmp(notes.data, c->note, strlen(c->note)) : !notes.data);
        tracking_choice_free(&choice);
    }
}

static void ids_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        bool good;
    } ids[] = {{"abc-1_2", true},
               {"../x", false},
               {".x", false},
               {"a b", false},
               {"0123456789012345678901234567890123456789012345678901234567890123", true},
               {"01234567890123456789012345678901234567890123456789012345678901234", false}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *const list[] = {"WANDB_RUN_ID", ids[i].id, NULL};
        struct tracking_choice choice;
        struct muster_error err = {0};
        scope_buffer notes = {0};
        variables = list;
        assert_int_equal(
            tracking_choose(&(struct tracking_wishes){.wandb = "offline"}, variable, &choice, &notes, &err),
            ids[i].good ? 0 : -1);
        assert_true(ids[i].good || strstr(err.text, ids[i].id));
        tracking_choice_free(&choice);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_cross_blocks),
        cmocka_unit_test(what_comes_again_is_cut),
        cmocka_unit_test(metrics_are_lines),
        cmocka_unit_test(names_come_back),
        cmocka_unit_test(settings_come_before_variables),
        cmocka_unit_test(ids_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
