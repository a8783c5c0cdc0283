/* checkpoint_damage_test.c - damaged, cut off, foreign and half-written checkpoints are refused by name, and
 * the one before is loaded; failures to write leave what there was. */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/exit_code.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/refusal.h"
#include "tests/support/faults.h"
#include "tests/unit/train/train_harness.h"

static char folder[64];
static struct trainer *trainer;
static struct model *model;

static int32_t tokens[8 * 16], targets[8 * 16];

static void take_steps(int count)
{
    struct training run = training_small();
    struct trainer_step_values values = training_values(&run, 0);
    struct muster_error err = {0};
    training_batch(&run, 0, 0, tokens, targets);
    for (int i = 0; i < count; i++)
        assert_int_equal(trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, NULL, &err), 0);
}

static int save_at(int64_t step, struct muster_error *err)
{
    struct checkpoint_save save = {.trainer = trainer,
                                   .folder = folder,
                                   .retention = {.last = 9},
                                   .run = {.step = step, .samples = step * 8}};
    return checkpoint_save(&save, NULL, err);
}

/* The step that is loaded, 0: none, -1: an error. */
static int load_newest(char *text, size_t size, struct muster_error *err)
{
    scope_buffer report = {0};
    struct checkpoint_load load = {.trainer = trainer, .folder = folder, .world_size = 1, .report = &report};
    error_clear(err);
    int result = checkpoint_load(&load, err);
    if (result > 0)
        result = (int)load.manifest.run.step;
    manifest_free(&load.manifest);
    (void)snprintf(text, size, "%s", report.data ? report.data : "");
    return result;
}

static void clear_folder(void)
{
    int64_t *steps;
    int count = folder_list(folder, &steps, NULL);
    for (int i = 0; i < count; i++)
        assert_int_equal(folder_remove(folder, steps[i], NULL), 0);
    mem_free(steps);
}

static int set_up(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct training run = training_small();
    struct trainer_options options = training_options(&run, 0);
    (void)snprintf(folder, sizeof folder, "/tmp/muster-damage-XXXXXX");
    model = gpt2_create(&run.gpt, &err);
    trainer = model ? trainer_create(model, &options, &err) : NULL;
    return trainer && mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    clear_folder();
    folder_clean(folder, -1);
    trainer_destroy(trainer);
    model_destroy(model);
    return rmdir(folder);
}

static void two_checkpoints(void)
{
    struct muster_error err = {0};
    clear_folder();
    take_steps(1);
    assert_int_equal(save_at(10, &err), 0);
    take_steps(1);
    assert_int_equal(save_at(20, &err), 0);
}

/* ---- bits ---- */

static void flip(const char *name, int64_t at, unsigned char mask)
{
    scope_free char *path = mem_printf("%s/step-20/%s", folder, name);
    unsigned char byte;
    scope_close int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static int64_t size_of(const char *name)
{
    scope_free char *path = mem_printf("%s/step-20/%s", folder, name);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

static void a_flipped_bit_anywhere_is_found(void **state)
{
    (void)state;
    const char *const names[] = {"manifest.json", "rank-0.safetensors"};
    char report[4096];
    struct muster_error err = {0};
    two_checkpoints();
    for (size_t n = 0; n < 2; n++) {
        int64_t size = size_of(names[n]), stride = size / 150;
        for (int64_t i = 0; i < 152; i++) {
            int64_t at = i < 150 ? i * stride + i % stride : size - 1 - (i - 150) * 9; /* the end too */
            unsigned char mask = (unsigned char)(1u << (i % 8));
            flip(names[n], at, mask);
            assert_int_equal(load_newest(report, sizeof report, &err), 10);
            assert_non_null(strstr(report, "refused "));
            assert_non_null(strstr(report, "/step-20: "));
            assert_non_null(strstr(report, names[n]));
            assert_non_null(strstr(report, "damaged"));
            flip(names[n], at, mask);
        }
    }
    assert_int_equal(load_newest(report, sizeof report, &err), 20);
    assert_string_equal(report, "");
}

/* ---- files ---- */

static void cut(const char *name, int64_t size)
{
    scope_free char *path = mem_printf("%s/step-20/%s", folder, name);
    assert_int_equal(truncate(path, size), 0);
}

static void take_away(const char *name)
{
    scope_free char *path = mem_printf("%s/step-20/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void what_is_cut_off_or_missing_is_found(void **state)
{
    (void)state;
    const char *const names[] = {"manifest.json", "rank-0.safetensors"};
    char report[4096];
    struct muster_error err = {0};
    for (size_t n = 0; n < 2; n++) {
        for (int part = 0; part < 5; part++) {
            two_checkpoints();
            int64_t size = size_of(names[n]);
            if (part < 4)
                cut(names[n], part == 0 ? 0 : part == 1 ? 5 : part == 2 ? size / 2 : size - 1);
            else
                take_away(names[n]);
            assert_int_equal(load_newest(report, sizeof report, &err), 10);
            assert_non_null(strstr(report, names[n]));
        }
    }
    two_checkpoints();
    cut(names[1], size_of(names[1]) + 1);
    assert_int_equal(load_newest(report, sizeof report, &err), 10);
}

static void one_under_another_name_is_refused(void **state)
{
    (void)state;
    char report[4096];
    struct muster_error err = {0};
    two_checkpoints();
    scope_free char *from = folder_step_path(folder, 20), *to = folder_step_path(folder, 30);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), 10);
    assert_non_null(strstr(report, "is of step 20"));
}

static void if_all_are_damaged_none_is_loaded(void **state)
{
    (void)state;
    char report[4096];
    struct muster_error err = {0};
    scope_free float *fresh = mem_calloc(48 * 32, sizeof *fresh), *now = mem_calloc(48 * 32, sizeof *now);
    assert_int_equal(trainer_restart(trainer, &err), 0);
    assert_int_equal(trainer_get_param(trainer, 0, fresh, &err), 0);
    two_checkpoints();
    take_away("manifest.json");
    scope_free char *first = folder_step_path(folder, 10), *file = mem_printf("%s/rank-0.safetensors", first);
    assert_int_equal(truncate(file, 1000), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), 0);
    assert_non_null(strstr(report, "/step-20: "));
    assert_non_null(strstr(report, "/step-10: "));
    assert_int_equal(trainer_get_param(trainer, 0, now, &err), 0);
    assert_memory_equal(now, fresh, 48 * 32 * sizeof *fresh);
    struct trainer_counts counts;
    trainer_get_counts(trainer, &counts);
    assert_int_equal(counts.steps, 0);
    /* The damaged one is replaced when its step comes again. */
    take_steps(1);
    assert_int_equal(save_at(10, &err), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), 10);
}

/* ---- unreadable checkpoints ---- */

static void only_what_was_read_is_damaged(void **state)
{
    (void)state;
    static const struct {
        int number;
        enum refusal kind;
    } rows[] = {
        {ENOENT, REFUSAL_DAMAGED},      {ENOTDIR, REFUSAL_DAMAGED},      {EISDIR, REFUSAL_DAMAGED},
        {ELOOP, REFUSAL_DAMAGED},       {EACCES, REFUSAL_UNREADABLE},    {EPERM, REFUSAL_UNREADABLE},
        {EIO, REFUSAL_UNREADABLE},      {EROFS, REFUSAL_UNREADABLE},     {ESTALE, REFUSAL_UNREADABLE},
        {EMFILE, REFUSAL_UNREADABLE},   {ENFILE, REFUSAL_UNREADABLE},    {ENOMEM, REFUSAL_UNREADABLE},
        {ENOTCONN, REFUSAL_UNREADABLE}, {ETIMEDOUT, REFUSAL_UNREADABLE}, {EREMOTEIO, REFUSAL_UNREADABLE},
        {ENOSPC, REFUSAL_UNREADABLE},   {EUCLEAN, REFUSAL_UNREADABLE}};
    struct muster_error err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        errno = rows[i].number;
        (void)error_errno(&err, "cannot read x"); /* -1 by its nature */
        if (refusal_of(err.code) != rows[i].kind)
            fail_msg("%s is refusal %d", strerror(rows[i].number), (int)refusal_of(err.code));
        if (rows[i].kind == REFUSAL_UNREADABLE)
            assert_int_equal(exit_code_of_error(err.code), EXIT_CODE_ENVIRONMENT);
    }
    assert_int_equal(refusal_of(MUSTER_OK), REFUSAL_NONE);
    assert_int_equal(refusal_of(MUSTER_E_REFUSED), REFUSAL_UNFIT);
    assert_int_equal(exit_code_of_error(MUSTER_E_REFUSED), EXIT_CODE_USAGE);
    assert_int_equal(exit_code_of_error(MUSTER_E_STATE), EXIT_CODE_FAILURE);
    assert_int_equal(exit_code_of_error(MUSTER_OK), EXIT_CODE_OK);
    assert_true(EXIT_CODE_ENVIRONMENT >= EXIT_CODE_SIGNAL_BASE);
}

/* The kernel gives EIO for the first bytes of a process's memory. */
static void one_that_cannot_be_read_is_an_error_and_no_older_one_is_loaded(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char report[4096];
    two_checkpoints();
    take_away("manifest.json");
    scope_free char *path = mem_printf("%s/step-20/manifest.json", folder);
    assert_int_equal(symlink("/proc/self/mem", path), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), -1);
    assert_int_equal(err.code, MUSTER_E_IO);
    assert_non_null(strstr(err.text, "/step-20 cannot be read"));
    assert_non_null(strstr(err.text, "Input/output error"));
    assert_string_equal(report, "");
    take_away("manifest.json"); /* a file that is missing is damage */
    assert_int_equal(load_newest(report, sizeof report, &err), 10);
}

/* ---- foreign ones ---- */

static void anothers_model_is_refused(void **state)
{
    (void)state;
    struct training run = training_small();
    struct muster_error err = {0};
    char report[4096];
    two_checkpoints();
    run.gpt.vocab = 40;
    struct trainer_options options = training_options(&run, 0);
    struct model *other = gpt2_create(&run.gpt, &err), *kept_model = model;
    struct trainer *kept = trainer;
    trainer = trainer_create(other, &options, &err);
    assert_non_null(trainer);
    assert_int_equal(load_newest(report, sizeof report, &err), -1);
    assert_int_equal(err.code, MUSTER_E_REFUSED);
    assert_non_null(strstr(err.text, "of another model: its parameter 0 is wte.weight (48, 32)"));
    /* A newer checkpoint that fits is used; an older checkpoint of the other model does not matter. */
    assert_int_equal(save_at(30, &err), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), 30);
    trainer_destroy(trainer);
    trainer = kept;
    model = kept_model;
    assert_int_equal(load_newest(report, sizeof report, &err),
                     20); /* the newest is foreign: the one before */
    assert_non_null(strstr(report, "/step-30: "));
    model_destroy(other);
}

static void another_optimizer_is_refused(void **state)
{
    (void)state;
    struct training run = training_small();
    struct muster_error err = {0};
    char report[4096];
    two_checkpoints();
    struct trainer_options options = training_options(&run, 0);
    options.plan.optimizer = (struct optimizer_options){.kind = OPTIMIZER_SGD, .momentum = 0.9};
    struct trainer *kept = trainer;
    trainer = trainer_create(model, &options, &err);
    assert_non_null(trainer);
    assert_int_equal(load_newest(report, sizeof report, &err), -1);
    assert_int_equal(err.code, MUSTER_E_REFUSED);
    assert_non_null(strstr(err.text, "training.optimizer"));
    trainer_destroy(trainer);
    trainer = kept;
}

/* ---- writing fails ---- */

static void what_an_ended_writer_left_is_removed(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char report[4096];
    two_checkpoints();
    scope_free char *half = folder_new_path(folder, 30),
                    *file = mem_printf("%s/rank-0.safetensors.new.1", half);
    assert_int_equal(mkdir(half, 0777), 0);
    assert_int_equal(io_write_file_atomic(file, "half", 4, 0666, &err), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), 20);
    assert_int_equal(save_at(40, &err), 0);
    assert_int_equal(access(half, F_OK), -1);
}

static void a_folder_that_cannot_be_written_harms_nothing(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char report[4096], kept[64];
    two_checkpoints();
    memcpy(kept, folder, sizeof kept);
    (void)snprintf(folder, sizeof folder, "/proc/version/checkpoints");
    assert_int_equal(save_at(30, &err), -1);
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    memcpy(folder, kept, sizeof kept);
    take_steps(1); /* the trainer goes on */
    assert_int_equal(save_at(30, &err), 0);
    assert_int_equal(load_newest(report, sizeof report, &err), 30);
}

static int save_again(void *context)
{
    (void)context;
    return save_at(30, NULL);
}

static void failed_allocations_harm_nothing(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char report[4096];
    two_checkpoints();
    faults_sweep_absorbed(save_again, NULL);
    assert_int_equal(load_newest(report, sizeof report, &err), 30);
    assert_string_equal(report, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_anywhere_is_found),
        cmocka_unit_test(what_is_cut_off_or_missing_is_found),
        cmocka_unit_test(one_under_another_name_is_refused),
        cmocka_unit_test(if_all_are_damaged_none_is_loaded),
        cmocka_unit_test(only_what_was_read_is_damaged),
        cmocka_unit_test(one_that_cannot_be_read_is_an_error_and_no_older_one_is_loaded),
        cmocka_unit_test(anothers_model_is_refused),
        cmocka_unit_test(another_optimizer_is_refused),
        cmocka_unit_test(what_an_ended_writer_left_is_removed),
        cmocka_unit_test(a_folder_that_cannot_be_written_harms_nothing),
        cmocka_unit_test(failed_allocations_harm_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
