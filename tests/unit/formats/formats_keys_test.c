/* formats_keys_test.c - the tables of keys: every key of DeepSpeed's is there, every row has its text,
 * and the document of the tables is up to date. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"
#include "trainer/formats/formats.h"
#include "trainer/formats/formats_internal.h"

static const struct key_table *const tables[] = {&deepspeed_keys, &model_keys, &arguments_keys,
                                                 &sections_aliases};

static bool has_setting(const char *name)
{
    return name && knob_find(train_config_table(), name, strlen(name), false, NULL);
}

/* The row of the mapping around this one. */
static const struct key_row *above(const struct key_table *table, const char *path)
{
    char name[160];
    (void)snprintf(name, sizeof name, "%s", path);
    char *dot = strrchr(name, '.');
    if (!dot)
        return NULL;
    *dot = '\0';
    return key_find(table, name);
}

/* "training.batch_size" has no row above: sections are not keys of other programs. */
static void check_row(const struct key_table *table, const struct key_row *row)
{
    const struct key_row *block = above(table, row->path);
    if (key_find(table, row->path) != row)
        fail_msg("%s has two rows", row->path);
    if (strchr(row->path, '.') && table != &sections_aliases && !block)
        fail_msg("%s: there is no row for the mapping around it", row->path);
    if ((row->kind == KEY_SETTING || row->kind == KEY_WEAK) && !has_setting(row->setting))
        fail_msg("%s: there is no setting %s", row->path, row->setting);
    if (row->kind == KEY_ONLY && (!row->only || !row->why))
        fail_msg("%s: why is missing", row->path);
    if (row->kind == KEY_RULE && (!row->rule || !row->why))
        fail_msg("%s: a rule needs a function and a word", row->path);
    if (row->kind == KEY_IDLE && !row->why && !(block && (block->why || block->kind == KEY_SWITCHED)))
        fail_msg("%s: why has it no effect?", row->path);
}

static void rows_are_whole(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t]->count; i++)
            check_row(tables[t], &tables[t]->rows[i]);
}

/* {"a": {"b": VALUE}} of "a.b". */
static void write_nested(struct buffer *out, const char *path, const char *value)
{
    int depth = 0;
    for (const char *at = path; *at; depth++) {
        const size_t length = strcspn(at, ".");
        buffer_printf(out, "{\"%.*s\": ", (int)length, at);
        at += length + (at[length] == '.');
    }
    buffer_text(out, value);
    while (depth--)
        buffer_text(out, "}");
}

/* The error of a DeepSpeed file with this key alone; "" for none. */
static const char *read_key(const char *path, const char *value, char out[MUSTER_ERROR_TEXT])
{
    scope_buffer text = {0};
    struct formats_settings settings;
    struct muster_error err = {0};
    buffer_text(&text, "{\"train_batch_size\": 8,\n");
    struct buffer nested = {0};
    write_nested(&nested, path, value);
    if (!strncmp(path, "train_batch_size", 16))
        buffer_clear(&text);
    buffer_text(&text, nested.data + (text.length ? 1 : 0));
    buffer_free(&nested);
    (void)formats_parse("ds.json", text.data, text.length, NULL, 0, 1, &settings, &err);
    formats_free(&settings);
    (void)snprintf(out, MUSTER_ERROR_TEXT, "%s", err.text);
    return out;
}

static void deepspeed_key(const char *path)
{
    static const char *const values[] = {"null", "true", "false", "1", "\"auto\"", "{}", "[]", "\"none\""};
    char text[MUSTER_ERROR_TEXT];
    if (!key_find(&deepspeed_keys, path))
        fail_msg("%s is not known", path);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        read_key(path, values[i], text);
        if (strstr(text, "unknown key"))
            fail_msg("%s: %s: %s", path, values[i], text);
        /* an error has its place; the rest of the file is whole but for data.path */
        if (*text && !strstr(text, "ds.json:") && !strstr(text, "data.path is missing") &&
            !strstr(text, "neither train_batch_size nor"))
            fail_msg("%s: %s: no place: %s", path, values[i], text);
    }
}

static void knows_every_key_of_deepspeed(void **state)
{
    (void)state;
    scope_buffer list = {0};
    bool parameters = false;
    int count = 0;
    char *rest = NULL;
    assert_int_equal(io_read_file("tests/data/configs/deepspeed_keys.txt", 1 << 20, &list, NULL), 0);
    for (char *line = strtok_r(list.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), count++) {
        if (!strcmp(line, "# parameters"))
            parameters = true;
        else if (parameters && !key_find(deepspeed_params, line))
            fail_msg("parameter %s is not known", line);
        else if (!parameters && *line != '#')
            deepspeed_key(line);
    }
    assert_true(count > 200);
}

static void refuses_unknown_ones_everywhere(void **state)
{
    (void)state;
    static const struct {
        const char *path, *error;
    } rows[] = {
        {"zero_optimisation",
         "ds.json:2:1: unknown key 'zero_optimisation'; did you mean 'zero_optimization'?"},
        {"zero_optimization.stge", "unknown key 'zero_optimization.stge'; did you mean 'stage'?"},
        {"zero_optimization.offload_optimizer.devise", "did you mean 'device'?"},
        {"fp16.lossscale", "unknown key 'fp16.lossscale'; did you mean 'loss_scale'?"},
        {"aio.blocksize", "did you mean 'block_size'?"},
        {"tensorboard.jobname", "did you mean 'job_name'?"},
        {"wandb.proj", "unknown key 'wandb.proj'"},
        {"optimizer.parms", "unknown key 'optimizer.parms'; did you mean 'params'?"},
    };
    char text[MUSTER_ERROR_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strstr(read_key(rows[i].path, "1", text), rows[i].error))
            fail_msg("%s: '%s' does not contain '%s'", rows[i].path, text, rows[i].error);
}

static void the_document_has_every_key(void **state)
{
    (void)state;
    scope_buffer text = {0};
    assert_int_equal(formats_markdown(&text), 0);
    assert_non_null(strstr(
        text.data, "\n## DeepSpeed's ds_config.json\n\n- `train_batch_size`: `training.global_batch`\n"));
    assert_non_null(
        strstr(text.data,
               "\n- `sequence_parallel_size`: only `1`: there is no sequence parallelism; leave it out\n"));
    for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= KNOB_MARKDOWN_COLUMNS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(knows_every_key_of_deepspeed),
        cmocka_unit_test(refuses_unknown_ones_everywhere),
        cmocka_unit_test(the_document_has_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
