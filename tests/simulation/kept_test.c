/* kept_test.c - schedules that once broke an invariant, made small: each holds now, and for ever.
 *
 *     simulation_kept DIRECTORY */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/simulation/schedule.h"
#include "tests/support/cmocka_all.h"

static const char *directory;

static void what_was_found_does_not_come_back(void **state)
{
    int count = 0;
    (void)state;
    DIR *kept = opendir(directory);
    assert_non_null(kept);
    for (const struct dirent *entry; (entry = readdir(kept));) {
        struct schedule schedule;
        struct outcome outcome;
        struct muster_error err;
        char path[512];
        if (!strstr(entry->d_name, ".txt"))
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (schedule_load(path, &schedule, &err) < 0)
            fail_msg("%s", err.text);
        schedule_run(&schedule, &outcome, NULL);
        if (outcome.broken)
            fail_msg("%s: %s", entry->d_name, outcome.text);
        count++;
    }
    (void)closedir(kept);
    assert_in_range(count, 1, 1000);
}

int main(int argc, char **argv)
{
    directory = argc > 1 ? argv[1] : "tests/simulation/kept";
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_found_does_not_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
