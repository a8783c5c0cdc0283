/* Constant addresses: they have memory while a group is gathered, and only then. */
#include "tests/support/cmocka_all.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/shard/shard_fault.h"
#include "runtime/shard/shard_ranges.h"

enum { GROUPS = 4, ELEMENTS = 3 << 20 }; /* 12 MB */

static struct shard_layout layout_of(int groups)
{
    struct shard_layout layout = {.size = 2, .element_bytes = 4, .gradient_bytes = 4};
    for (int i = 0; i < groups; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        assert_int_equal(shard_layout_group(&layout, name, false, NULL), i);
        assert_int_equal(shard_layout_parameter(&layout, name, i ? ELEMENTS : 100, 0, NULL), i);
    }
    assert_int_equal(shard_layout_finish(&layout, NULL), 0);
    return layout;
}

/* Resident bytes of this process, of its own memory. */
static int64_t resident(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(file);
    char line[256];
    long kb = -1;
    while (fgets(line, sizeof line, file) && sscanf(line, "Anonymous: %ld kB", &kb) != 1)
        ;
    (void)fclose(file);
    assert_true(kb >= 0);
    return (int64_t)kb * 1024;
}

/* Whether reading there ends a process. */
static bool faults(const char *at)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        (void)signal(SIGSEGV, SIG_DFL);
        _exit(*(const volatile char *)at & 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) > 1); /* a sanitizer exits */
}

static void walk_groups(struct shard_ranges *ranges, const struct shard_layout *layout)
{
    int64_t before = resident();
    char *addresses[GROUPS];
    for (int g = 0; g < GROUPS; g++)
        addresses[g] = ranges->ranges[g];
    for (int round = 0; round < 3; round++) {
        for (int g = 0; g < GROUPS; g++) {
            assert_int_equal(shard_ranges_map(ranges, layout, g, NULL), 0);
            assert_ptr_equal(ranges->ranges[g], addresses[g]);
            size_t bytes = (size_t)layout->groups[g].elements * 4;
            memset(addresses[g], g + 1, bytes);
            assert_int_equal(addresses[g][bytes - 1], g + 1);
            assert_int_equal(shard_ranges_unmap(ranges, g, NULL), 0);
        }
    }
    for (int g = 0; g < GROUPS; g++)
        assert_true(faults(addresses[g]));
    assert_int_equal(shard_ranges_unmap(ranges, 1, NULL), -1);
    /* one slot of each of the two classes stays */
    assert_true(resident() - before <= ranges->slot_bytes + (1 << 20));
    assert_int_equal(ranges->slot_count, 2);
}

static void memory_moves_between_addresses(void **state)
{
    (void)state;
    struct shard_layout layout = layout_of(GROUPS);
    struct shard_ranges ranges;
    assert_int_equal(shard_ranges_create(&ranges, &layout, 2, NULL), 0);
    walk_groups(&ranges, &layout);
    assert_false(ranges.fresh); /* this machine's kernel can */
    shard_ranges_destroy(&ranges);
    assert_int_equal(shard_ranges_create(&ranges, &layout, 2, NULL), 0);
    ranges.fresh = true; /* as on an older one */
    walk_groups(&ranges, &layout);
    shard_ranges_destroy(&ranges);
    shard_layout_free(&layout);
}

static void spare_slots_give_their_pages_back(void **state)
{
    (void)state;
    struct shard_layout layout = layout_of(8);
    struct shard_ranges ranges;
    assert_int_equal(shard_ranges_create(&ranges, &layout, 2, NULL), 0);
    int64_t before = resident(), slot = layout.classes[layout.groups[1].slot_class].bytes;
    for (int g = 1; g < 8; g++) {
        assert_int_equal(shard_ranges_map(&ranges, &layout, g, NULL), 0);
        memset(ranges.ranges[g], 1, (size_t)slot);
    }
    assert_true(resident() - before >= 7 * slot);
    for (int g = 1; g < 8; g++)
        assert_int_equal(shard_ranges_unmap(&ranges, g, NULL), 0);
    assert_true(resident() - before <= 2 * slot + (1 << 20));
    shard_ranges_destroy(&ranges);
    assert_true(resident() - before <= 1 << 20);
    shard_layout_free(&layout);
}

static atomic_int notices;

static int notice(int argument)
{
    return atomic_fetch_add(&notices, argument);
}

/* A released parameter reads as NaN, is named once, and faults again afterwards; other faults end the
 * process. */
static void accesses_to_released_ranges_are_noticed(void **state)
{
    (void)state;
    struct shard_layout layout = layout_of(GROUPS);
    struct shard_ranges ranges;
    assert_int_equal(shard_ranges_create(&ranges, &layout, 2, NULL), 0);
    assert_int_equal(shard_fault_watch(&ranges, notice, 5, NULL), 0);
    assert_null(shard_fault_take(&ranges));
    for (int round = 0; round < 2; round++) {
        volatile float *at = (volatile float *)(void *)ranges.ranges[1] + 12345;
        volatile double *last = (volatile double *)(void *)(ranges.ranges[2] + ranges.range_bytes[2]) - 1;
        assert_true(*at != *at);
        assert_true(*last != *last);
        *at = 1;
        assert_int_equal(atomic_load(&notices), 5 * (round + 1)); /* the first one */
        assert_ptr_equal(shard_fault_take(&ranges), at);
        assert_null(shard_fault_take(&ranges));
    }
    assert_int_equal(shard_ranges_map(&ranges, &layout, 1, NULL), 0);
    memset(ranges.ranges[1], 1, (size_t)layout.groups[1].elements * 4);
    assert_null(shard_fault_take(&ranges));
    assert_int_equal(ranges.ranges[1][0], 1);
    assert_int_equal(shard_ranges_unmap(&ranges, 1, NULL), 0);
    char *nowhere = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(faults(nowhere));
    char *gone = ranges.ranges[3];
    shard_fault_forget(&ranges);
    assert_true(faults(gone));
    assert_int_equal(munmap(nowhere, 4096), 0);
    shard_ranges_destroy(&ranges);
    shard_layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_moves_between_addresses),
        cmocka_unit_test(spare_slots_give_their_pages_back),
        cmocka_unit_test(accesses_to_released_ranges_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
