/* visible_devices_test.c - CUDA_VISIBLE_DEVICES as CUDA reads it. */
#include "proto/visible_devices.h"

#include <string.h>

#include "tests/support/cmocka_all.h"

static void entries_of_a_list(void **state)
{
    static const struct {
        const char *list;
        int index;
        const char *expected; /* NULL: none */
    } rows[] = {
        {"a,b,c", 0, "a"},   {"a,b,c", 2, "c"}, {"a,b,c", 3, NULL}, {" a , b b ,", 1, "b b"},
        {" a , b ,", 2, ""}, {"", 0, ""},       {"", 1, NULL},      {",", 1, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = 99;
        const char *entry = visible_devices_entry(rows[i].list, rows[i].index, &length);
        assert_int_equal(entry != NULL, rows[i].expected != NULL);
        if (!entry)
            continue;
        assert_int_equal(length, strlen(rows[i].expected));
        assert_memory_equal(entry, rows[i].expected, length);
    }
    assert_int_equal(visible_devices_count(""), 1);
    assert_int_equal(visible_devices_count("0,1,"), 3);
}

static void cuda_visible_devices(void **state)
{
    (void)state;
    static const struct visible_device devices[] = {
        {0, false, false, "GPU-5ebe9f43-aaaa"}, {1, false, false, "GPU-5ebe0000-bbbb"},
        {2, false, true, "GPU-77777777-cccc"},  {2, true, false, "MIG-1111-a"},
        {2, true, false, "MIG-2222-b"},         {3, false, false, "GPU-88888888-dddd"}};
    static const struct {
        const char *list, *expected; /* digits: positions in devices */
    } rows[] = {
        {NULL, "01345"},
        {"", ""},
        {"0", "0"},
        {"3,0", "50"},
        {" 1 , 0 ", "10"},
        {"0,4,1", "0"},
        {"0,-1,1", "0"},
        {"-1", ""},
        {"0,,1", "0"},
        {"0,1,0", ""},
        {"2", "2"},
        {"GPU-5ebe9,GPU-8", "05"},
        {"GPU-5ebe", ""},
        {"GPU-5ebe9f43-aaaa", "0"},
        {"GPU-", ""},
        {"MIG-1111-a,MIG-2222-b", "34"},
        {"MIG-2", "4"},
        {"MIG-3", ""},
        {"GPU-5ebe9,GPU-5ebe9f43", ""},
        {"gpu0", ""},
        {"NoDevFiles", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int chosen[6];
        char got[16] = "";
        int count = visible_devices_choose(devices, 6, rows[i].list, chosen);
        for (int k = 0; k < count; k++)
            got[k] = (char)('0' + chosen[k]);
        assert_string_equal(got, rows[i].expected);
    }
}

static void devices_without_known_uuids(void **state)
{
    static const struct visible_device devices[] = {
        {0, false, false, NULL}, {1, false, true, NULL}, {1, true, false, NULL}, {2, false, false, "GPU-bb"}};
    static const struct {
        const char *list;
        int count, first;
    } rows[] = {
        {NULL, 3, 0},    {"GPU-aa", 1, 0},      {"GPU-bb,GPU-aa", 2, 3},
        {"MIG-a", 1, 2}, {"MIG-a,MIG-b", 1, 2}, {"0,GPU-x,GPU-y", 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int chosen[4] = {0};
        assert_int_equal(visible_devices_choose(devices, 4, rows[i].list, chosen), rows[i].count);
        assert_int_equal(chosen[0], rows[i].first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_of_a_list),
        cmocka_unit_test(cuda_visible_devices),
        cmocka_unit_test(devices_without_known_uuids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
