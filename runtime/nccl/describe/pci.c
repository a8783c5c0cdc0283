/* pci.c - see pci.h. The offsets are the PCI Express base specification's. */
#include "runtime/nccl/describe/pci.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* --- paths --- */

/* "0000:3b:00.0"; domains may have more than four digits. */
static bool is_address(const char *text, size_t length)
{
    size_t digits = 0;
    while (digits < length && isxdigit((unsigned char)text[digits]))
        digits++;
    static const char form[] = ":hh:hh.h";
    if (digits < 4 || digits > 8 || length != digits + sizeof form - 1)
        return false;
    for (size_t i = 0; i < sizeof form - 1; i++)
        if (form[i] == 'h' ? !isxdigit((unsigned char)text[digits + i]) : text[digits + i] != form[i])
            return false;
    return true;
}

static bool add_hop(struct pci_path *path, const char *part, size_t length)
{
    if (path->depth == PCI_DEPTH)
        return false;
    (void)snprintf(path->hops[path->depth++], PCI_NAME, "%.*s", (int)length, part);
    return true;
}

/* ".../devices/pci0000:00/0000:00:01.0/0000:01:00.0" */
void pci_path_parse(const char *target, struct pci_path *path)
{
    *path = (struct pci_path){0};
    for (const char *part = target; *part;) {
        size_t length = strcspn(part, "/");
        if (!strncmp(part, "pci", 3) && length < PCI_NAME && isxdigit((unsigned char)part[3]))
            (void)snprintf(path->root, PCI_NAME, "%.*s", (int)length, part);
        else if (*path->root && is_address(part, length) && !add_hop(path, part, length)) {
            path->depth = 0;
            return;
        }
        part += length + (part[length] == '/');
    }
}

/* Hops that both have in common. */
static int shared(const struct pci_path *a, const struct pci_path *b)
{
    int common = 0;
    while (common < a->depth && common < b->depth && !strcmp(a->hops[common], b->hops[common]))
        common++;
    return common;
}

/* A switch appears as one bridge up and one down for each of its ports. Two devices of one switch are two
 * hops below their common bridge, the port and the device itself. With a further switch in between they are
 * four hops below it. */
enum description_distance pci_distance(const struct pci_path *a, const struct pci_path *b, int numa_a,
                                       int numa_b, int numa_nodes)
{
    enum { BELOW_ONE_SWITCH = 2 };
    if (a->depth == 0 || b->depth == 0)
        return DESCRIPTION_DISTANCE_UNKNOWN;
    if (!strcmp(a->root, b->root)) {
        int common = shared(a, b), longer = a->depth > b->depth ? a->depth : b->depth;
        return common == 0                           ? DESCRIPTION_PHB
               : longer - common <= BELOW_ONE_SWITCH ? DESCRIPTION_PIX
                                                     : DESCRIPTION_PXB;
    }
    if (numa_nodes <= 1 || (numa_a >= 0 && numa_a == numa_b))
        return DESCRIPTION_NODE;
    return numa_a >= 0 && numa_b >= 0 ? DESCRIPTION_SYS : DESCRIPTION_DISTANCE_UNKNOWN;
}

void pci_between(const struct pci_path *a, const struct pci_path *b,
                 void (*each)(const char *bridge, void *context), void *context)
{
    int common = strcmp(a->root, b->root) ? 0 : shared(a, b);
    if (common == 0)
        return;
    for (int i = common; i < a->depth - 1; i++)
        each(a->hops[i], context);
    for (int i = common; i < b->depth - 1; i++)
        each(b->hops[i], context);
}

int pci_generation(double rate)
{
    static const double rates[] = {2.5, 5, 8, 16, 32, 64};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rate == rates[i])
            return (int)i + 1;
    return 0;
}

/* --- access control services --- */

static uint16_t word(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

enum description_flag pci_acs_redirects(const uint8_t *configuration, size_t length)
{
    enum {
        EXTENDED = 0x100,
        SPACE = 0x1000,
        ACS_ID = 0x000d,
        ACS_CONTROL = 6,
        REQUESTS = 0x4,
        COMPLETIONS = 0x8
    };
    /* a list longer than the configuration space can hold is circular */
    enum { LONGEST = (SPACE - EXTENDED) / 8 };
    if (length < EXTENDED + 4)
        return DESCRIPTION_UNKNOWN;
    size_t at = EXTENDED;
    for (int i = 0; i < LONGEST; i++) {
        if (at + ACS_CONTROL + 2 > length)
            return DESCRIPTION_UNKNOWN;
        uint16_t id = word(configuration + at), next = word(configuration + at + 2) >> 4 & 0xffc;
        if (id == 0xffff) /* the device does not respond */
            return DESCRIPTION_UNKNOWN;
        if (id == ACS_ID)
            return word(configuration + at + ACS_CONTROL) & (REQUESTS | COMPLETIONS) ? DESCRIPTION_YES
                                                                                     : DESCRIPTION_NO;
        if (next < EXTENDED) /* 0 ends the list; other values below are invalid */
            return next == 0 ? DESCRIPTION_NO : DESCRIPTION_UNKNOWN;
        at = next;
    }
    return DESCRIPTION_UNKNOWN;
}
