/* nccl_description_test.c - a description as JSON and back, errors, and versions. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "runtime/nccl/describe/description.h"
#include "runtime/nccl/describe/description_table.h"
#include "runtime/nccl/files/description_json.h"

static int read_text(const char *text, struct description *out, struct muster_error *err)
{
    return description_read("machine.json", text, strlen(text), out, err);
}

/* A value that is not the field's "unknown", different from field to field. */
static void fill(const struct description_table *table, void *record, int *seed);

static void fill_field(const struct description_field *field, void *record, int *seed)
{
    void *at = (char *)record + field->offset;
    int n = ++*seed;
    switch (field->type) {
    case DESCRIPTION_FIELD_TEXT:
        (void)snprintf(at, field->size, "text %d \"\\\n \xc3\xa9", n);
        break;
    case DESCRIPTION_FIELD_INT:
        *(int *)at = 1000 + n;
        break;
    case DESCRIPTION_FIELD_INT64:
        *(int64_t *)at = ((int64_t)1 << 40) + n;
        break;
    case DESCRIPTION_FIELD_UINT64:
        *(uint64_t *)at = ((uint64_t)1 << 50) + (uint64_t)n;
        break;
    case DESCRIPTION_FIELD_DOUBLE:
        *(double *)at = n + 0.1;
        break;
    case DESCRIPTION_FIELD_BOOL:
        *(bool *)at = true;
        break;
    case DESCRIPTION_FIELD_FLAG:
        *(enum description_flag *)at = n % 2 ? DESCRIPTION_YES : DESCRIPTION_NO;
        break;
    case DESCRIPTION_FIELD_NAME:
        *(int *)at = field->unknown == 0 ? 1 : 0;
        break;
    case DESCRIPTION_FIELD_LIST: {
        char *items = mem_calloc(2, field->table->size);
        assert_non_null(items);
        *(char **)at = items;
        *(int *)((char *)record + field->count_offset) = 2;
        for (int i = 0; i < 2; i++)
            fill(field->table, items + (size_t)i * field->table->size, seed);
        break;
    }
    }
}

static void fill(const struct description_table *table, void *record, int *seed)
{
    description_record_init(table, record);
    for (size_t i = 0; i < table->count; i++)
        fill_field(&table->fields[i], record, seed);
}

static void every_field_survives_the_way_to_json_and_back(void **state)
{
    (void)state;
    struct description before, after;
    struct muster_error err = {0};
    scope_buffer first = {0}, second = {0};
    int seed = 0;
    fill(description_table(), &before, &seed);
    before.version = DESCRIPTION_VERSION;
    assert_int_equal(description_write(&before, &first), 0);
    if (read_text(first.data, &after, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(description_write(&after, &second), 0);
    assert_string_equal(first.data, second.data);
    assert_int_equal(after.gpu_count, 2);
    assert_string_equal(after.gpus[1].name, before.gpus[1].name);
    assert_int_equal(after.rdma[1].gids[1].index, before.rdma[1].gids[1].index);
    description_free(&before);
    description_free(&after);
}

static void what_is_left_out_is_unknown(void **state)
{
    (void)state;
    struct description d;
    assert_int_equal(read_text("{\"version\": 1, \"gpus\": [{\"index\": 3}]}", &d, NULL), 0);
    assert_int_equal(d.memlock_bytes, -2);
    assert_int_equal(d.nvml, DESCRIPTION_UNKNOWN);
    assert_string_equal(d.visible_devices, "-");
    assert_int_equal(d.gpus[0].nvlinks, -1);
    assert_int_equal(d.gpus[0].mig, DESCRIPTION_UNKNOWN);
    assert_false(d.sys_mounted);
    description_free(&d);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "machine.json:1:1: this is a list, expected an object"},
        {"{\"version\": 2}", "version 2, this program reads 1"},
        {"{\"version\": 1, \"gpu\": []}", "did you mean gpus"},
        {"{\"version\": 1, \"nnodes\": \"two\"}", "nnodes is text, expected a whole number"},
        {"{\"version\": 1, \"nnodes\": 5000000000}", "does not fit"},
        {"{\"version\": 1, \"wsl\": 1}", "true or false"},
        {"{\"version\": 1, \"gpu_links\": [{\"distance\": \"FAR\"}]}", "one of its names"},
        {"{\"version\": 1, \"interfaces\": [{\"name\": "
         "\"a23456789012345678901234567890123456789012345678901234567890123456789\"}]}",
         "at most 63 fit"},
        {"{", "machine.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct description d;
        struct muster_error err = {0};
        assert_int_equal(read_text(cases[i].text, &d, &err), -1);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
        assert_null(d.gpus);
    }
}

static void the_first_setting_of_a_name_counts(void **state)
{
    (void)state;
    struct description d;
    assert_int_equal(
        read_text("{\"version\": 1, \"settings\": ["
                  "{\"name\": \"NCCL_DEBUG\", \"value\": \"INFO\", \"source\": \"environment\"},"
                  "{\"name\": \"NCCL_DEBUG\", \"value\": \"WARN\", \"source\": \"/etc/nccl.conf:1\"}]}",
                  &d, NULL),
        0);
    assert_string_equal(description_setting_of(&d, "NCCL_DEBUG")->value, "INFO");
    assert_null(description_setting_of(&d, "NCCL_NET"));
    description_free(&d);
}

static void versions(void **state)
{
    (void)state;
    assert_int_equal(description_version("2.27.5"), 22705);
    assert_int_equal(description_version("2.18"), 21800);
    assert_int_equal(description_version("2.21.5+cuda12.4"), 22105);
    assert_int_equal(description_version(""), 0);
    assert_int_equal(description_version("two"), 0);
    assert_int_equal(description_version("2.x"), 0);
    assert_string_equal(description_distance_name(DESCRIPTION_PHB), "PHB");
    assert_string_equal(description_distance_name((enum description_distance)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_survives_the_way_to_json_and_back),
        cmocka_unit_test(what_is_left_out_is_unknown),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(the_first_setting_of_a_name_counts),
        cmocka_unit_test(versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
