/* nccl_pci_test.c - distances of two devices from their paths in /sys, the bridges between them, and access
 * control from the bytes of a bridge's configuration space. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "runtime/nccl/describe/pci.h"

static struct pci_path path_of(const char *target)
{
    struct pci_path path;
    pci_path_parse(target, &path);
    return path;
}

static void paths_of_sys(void **state)
{
    (void)state;
    static const struct {
        const char *target, *root, *last;
        int depth;
    } rows[] = {
        {"../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00", "0000:01:00.0", 2},
        {"../../../devices/pci0000:00/0000:00:01.0", "pci0000:00", "0000:00:01.0", 1},
        {"../../../devices/pci10000:e0/10000:e0:01.0/10000:e1:00.0", "pci10000:e0", "10000:e1:00.0", 2},
        {"../../devices/pci0000:00/0000:00:04.0/virtio1/net/eth0", "pci0000:00", "0000:00:04.0", 1},
        {"../../devices/virtual/net/lo", "", "", 0},
        {"0000:01:00.0", "", "", 0}, /* without a host bridge nothing is known */
        {"devices/pci0000:00/0000:00:0x.0", "pci0000:00", "", 0},
        {"pci0/0000:00:01.0", "pci0", "0000:00:01.0", 1}, /* the shortest domains, and the longest */
        {"pci/0000:00:01.0", "", "", 0},
        {"pcix/0000:00:01.0", "", "", 0},
        {"pci0000:00/000:00:01.0", "pci0000:00", "", 0},
        {"pci0000:00/12345678:00:01.0", "pci0000:00", "12345678:00:01.0", 1},
        {"pci0000:00/123456789:00:01.0", "pci0000:00", "", 0},
        {"pci0000:00/0000-00:01.0", "pci0000:00", "", 0},
        {"pci0000:00/x000:00:01.0", "pci0000:00", "", 0},
        {"pci0000:00/0000:00:01.00", "pci0000:00", "", 0},
        {"pci0000:00/00000", "pci0000:00", "", 0},
        {"", "", "", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pci_path path = path_of(rows[i].target);
        if (path.depth != rows[i].depth || strcmp(path.root, rows[i].root) != 0 ||
            (path.depth && strcmp(path.hops[path.depth - 1], rows[i].last) != 0))
            fail_msg("%s: %d %s", rows[i].target, path.depth, path.root);
    }
    char root[PCI_NAME + 16] = "pci";
    for (size_t length = PCI_NAME - 1; length <= PCI_NAME; length++) { /* the longest name, and one longer */
        memset(root + 3, '0', length - 3);
        strcpy(root + length, "/0000:00:01.0");
        assert_int_equal(path_of(root).depth, length < PCI_NAME);
    }
    char deep[2048] = "pci0000:00";
    for (int i = 0; i < PCI_DEPTH + 1; i++)
        (void)snprintf(deep + strlen(deep), sizeof deep - strlen(deep), "/0000:%02x:00.0", i);
    assert_int_equal(path_of(deep).depth, 0);
}

#define SWITCH "pci0000:10/0000:10:01.0/0000:11:00.0"

static void distance_words(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int numa_a, numa_b, nodes;
        enum description_distance distance;
    } rows[] = {
        /* two ports of one switch */
        {SWITCH "/0000:12:00.0/0000:13:00.0", SWITCH "/0000:12:01.0/0000:14:00.0", 0, 0, 2, DESCRIPTION_PIX},
        /* two functions of one card */
        {"pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:01.0/0000:01:00.1", 0, 0, 2,
         DESCRIPTION_PIX},
        /* one GPU below a second switch */
        {SWITCH "/0000:12:00.0/0000:13:00.0", SWITCH "/0000:12:01.0/0000:15:00.0/0000:16:00.0/0000:17:00.0",
         0, 0, 2, DESCRIPTION_PXB},
        /* two root ports of one host bridge */
        {"pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:02.0/0000:02:00.0", 0, 0, 2,
         DESCRIPTION_PHB},
        {"pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:20/0000:20:02.0/0000:21:00.0", 0, 0, 2,
         DESCRIPTION_NODE},
        {"pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:80/0000:80:02.0/0000:81:00.0", 0, 1, 2,
         DESCRIPTION_SYS},
        {"pci0000:00/0000:00:05.0", "pci0001:00/0001:00:05.0", -1, -1, 1, DESCRIPTION_NODE},
        {"pci0000:00/0000:00:05.0", "pci0001:00/0001:00:05.0", -1, 0, 2, DESCRIPTION_DISTANCE_UNKNOWN},
        {"", "pci0000:00/0000:00:05.0", 0, 0, 1, DESCRIPTION_DISTANCE_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pci_path a = path_of(rows[i].a), b = path_of(rows[i].b);
        enum description_distance there = pci_distance(&a, &b, rows[i].numa_a, rows[i].numa_b, rows[i].nodes),
                                  back = pci_distance(&b, &a, rows[i].numa_b, rows[i].numa_a, rows[i].nodes);
        if (there != rows[i].distance || back != there)
            fail_msg("row %zu: %s", i, description_distance_name(there));
    }
}

static void append(const char *bridge, void *context)
{
    strcat(strcat(context, bridge), " ");
}

static void bridges_between(void **state)
{
    (void)state;
    char seen[256] = "";
    struct pci_path a = path_of(SWITCH "/0000:12:00.0/0000:13:00.0"),
                    b = path_of(SWITCH "/0000:12:01.0/0000:15:00.0/0000:16:00.0/0000:17:00.0"),
                    elsewhere = path_of("pci0000:80/0000:80:02.0/0000:81:00.0");
    pci_between(&a, &b, append, seen);
    assert_string_equal(seen, "0000:12:00.0 0000:12:01.0 0000:15:00.0 0000:16:00.0 ");
    *seen = 0;
    pci_between(&a, &elsewhere, append, seen);
    assert_string_equal(seen, "");
}

static void generations(void **state)
{
    (void)state;
    static const double rates[] = {2.5, 5, 8, 16, 32, 64};
    for (int i = 0; i < 6; i++)
        assert_int_equal(pci_generation(rates[i]), i + 1);
    assert_int_equal(pci_generation(0), 0);
    assert_int_equal(pci_generation(17), 0);
}

/* --- access control --- */

static uint8_t space[4096];

static void capability(unsigned at, unsigned id, unsigned next)
{
    space[at] = (uint8_t)id;
    space[at + 1] = (uint8_t)(id >> 8);
    space[at + 2] = (uint8_t)(1 | (next & 0xf) << 4);
    space[at + 3] = (uint8_t)(next >> 4);
}

static void access_control(void **state)
{
    (void)state;
    enum { ADVANCED_ERRORS = 1, ACS = 0xd };
    memset(space, 0, sizeof space);
    capability(0x100, ADVANCED_ERRORS, 0x148);
    capability(0x148, ACS, 0);
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_NO); /* there, and off */
    space[0x148 + 6] = 0x1;                                                   /* source validation alone */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_NO);
    space[0x148 + 6] = 0x1d; /* as Linux sets it with an IOMMU: SV RR CR UF */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_YES);
    capability(0x100, ADVANCED_ERRORS, 0); /* no such capability */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_NO);
    memset(space + 0x100, 0, 4); /* no extended capability at all */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_NO);
}

/* The list may be as long as there is room, and end where the space does. */
static void the_longest_list(void **state)
{
    (void)state;
    enum { ACS = 0xd, LAST = 4096 - 8 };
    memset(space, 0, sizeof space);
    for (unsigned at = 0x100; at < LAST; at += 8)
        capability(at, 1, at + 8);
    capability(LAST, ACS, 0);
    space[LAST + 6] = 0x1d;
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_YES);
    assert_int_equal(pci_acs_redirects(space, sizeof space - 1), DESCRIPTION_UNKNOWN);
    capability(LAST, 1, 0x100); /* a circle through all of it */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_UNKNOWN);
    capability(LAST, 1, 0); /* and without access control */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_NO);
}

static void spaces_that_do_not_tell(void **state)
{
    (void)state;
    memset(space, 0, sizeof space);
    capability(0x100, 1, 0x100); /* a circle */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_UNKNOWN);
    capability(0x100, 1, 0x40); /* points before the list */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_UNKNOWN);
    capability(0x100, 1, 0xffc); /* the last words have no room for it */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_UNKNOWN);
    assert_int_equal(pci_acs_redirects(space, 64), DESCRIPTION_UNKNOWN); /* what others than root read */
    assert_int_equal(pci_acs_redirects(space, 256), DESCRIPTION_UNKNOWN);
    memset(space, 0xff, sizeof space); /* the device is gone */
    assert_int_equal(pci_acs_redirects(space, sizeof space), DESCRIPTION_UNKNOWN);
    for (size_t length = 0; length < sizeof space; length += 7)
        (void)pci_acs_redirects(space, length); /* within its bounds, for the sanitizer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_of_sys),
        cmocka_unit_test(distance_words),
        cmocka_unit_test(bridges_between),
        cmocka_unit_test(generations),
        cmocka_unit_test(access_control),
        cmocka_unit_test(the_longest_list),
        cmocka_unit_test(spaces_that_do_not_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
