/* nccl_decide_test.c - decisions over the machines of tests/data/machines, held to goldens, and properties
 * over random ones.
 *
 * Next to each NAME.json is NAME.decisions, the table for people. MUSTER_GOLDEN_UPDATE=1 writes
 * them anew; read the difference before committing it. */
#include "tests/support/cmocka_all.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/decide/policy.h"
#include "runtime/nccl/files/description_json.h"

enum { MACHINES_LEAST = 25, COLUMNS = 120 };

static char *slurp(const char *path, size_t *length)
{
    scope_fclose FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = mem_calloc(1, 1 << 20);
    *length = text ? fread(text, 1, (1 << 20) - 1, file) : 0;
    return text;
}

static void read_machine(const char *path, struct description *out)
{
    struct muster_error err = {0};
    size_t length;
    scope_free char *text = slurp(path, &length);
    assert_non_null(text);
    if (description_read(path, text, length, out, &err) < 0)
        fail_msg("%s", err.text);
}

static void check_machine(const char *json)
{
    struct description machine;
    struct decision_list list = {0};
    scope_buffer table = {0};
    size_t length;
    scope_free char *golden = mem_printf("%.*s.decisions", (int)(strlen(json) - strlen(".json")), json);
    read_machine(json, &machine);
    assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
    assert_int_equal(decision_print(&list, COLUMNS, &table), 0);
    buffer_text(&table, ""); /* an empty table is a text too */
    if (getenv("MUSTER_GOLDEN_UPDATE")) {
        scope_fclose FILE *file = fopen(golden, "wb");
        assert_non_null(file);
        assert_int_equal(fputs(table.data, file) < 0, 0);
    }
    scope_free char *wanted = slurp(golden, &length);
    if (!wanted)
        fail_msg("%s is missing", golden);
    if (strcmp(wanted, table.data))
        fail_msg("%s: decisions differ.\n--- wanted\n%s--- found\n%s", json, wanted, table.data);
    decision_list_free(&list);
    description_free(&machine);
}

static void every_machine_has_the_decisions_that_were_argued(void **state)
{
    (void)state;
    int count = 0;
    DIR *folder = opendir(MUSTER_MACHINES);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".json"))
            continue;
        scope_free char *path = mem_printf(MUSTER_MACHINES "/%s", entry->d_name);
        check_machine(path);
        count++;
    }
    (void)closedir(folder);
    assert_true(count >= MACHINES_LEAST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_machine_has_the_decisions_that_were_argued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
