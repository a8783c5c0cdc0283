/* xid.c - see xid.h. The table holds the numbers that occur in training jobs. */
#include "proto/xid.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char see_program[] =
    "look for the program's error first (compute-sanitizer finds it); if it follows "
    "one GPU, test that GPU";
static const char reset_gpu[] = "drain the node and reset the GPU; replace it if this comes again";
static const char reboot[] = "drain and reboot the node; replace the GPU if this comes again";
static const char links[] = "check the NVLink cables and switches, reset the GPUs of the node";
static const char nothing[] = "read the report before it";

static const struct xid_meaning meanings[] = {
    {13, XID_PROGRAM, "an exception in the graphics engine, usually an access out of bounds", see_program},
    {31, XID_PROGRAM, "a page fault in GPU memory, usually an illegal address", see_program},
    {32, XID_MACHINE, "a corrupted command stream", "test the GPU and its PCIe slot"},
    {38, XID_MACHINE, "an error of the driver's firmware", reboot},
    {43, XID_PROGRAM, "the GPU stopped the program's channel after its error", see_program},
    {45, XID_FOLLOWER, "the channels of a program that ended were cleaned up", nothing},
    {48, XID_MACHINE, "an uncorrectable memory error (double bit)", reset_gpu},
    {61, XID_MACHINE, "an internal microcontroller stopped", reboot},
    {62, XID_MACHINE, "an internal microcontroller halted", reboot},
    {63, XID_FOLLOWER, "a memory row or page was retired", "reset the GPU when the job has ended"},
    {64, XID_MACHINE, "a memory row or page could not be retired", reset_gpu},
    {68, XID_MACHINE, "an exception in the video decoder", see_program},
    {69, XID_PROGRAM, "an exception in the graphics engine's class", see_program},
    {74, XID_MACHINE, "an NVLink error", links},
    {79, XID_MACHINE, "the GPU has fallen off the bus", reboot},
    {92, XID_FOLLOWER, "many correctable memory errors", "have the GPU tested when the job has ended"},
    {94, XID_MACHINE, "a contained memory error: only this program is hit",
     "start again; reset the GPU soon"},
    {95, XID_MACHINE, "an uncontained memory error: every program on the GPU is hit", reset_gpu},
    {109, XID_MACHINE, "a context switch timed out", reset_gpu},
    {110, XID_MACHINE, "a security fault", reboot},
    {119, XID_MACHINE, "the GPU's system processor (GSP) did not answer", reset_gpu},
    {120, XID_MACHINE, "an error of the GPU's system processor (GSP)", reset_gpu},
    {121, XID_MACHINE, "an error of the link between CPU and GPU (C2C)", reboot},
    {136, XID_MACHINE, "a link could not be trained", links},
    {137, XID_PROGRAM, "an access over NVLink that is not allowed, usually to memory of a peer that ended",
     see_program},
    {140, XID_MACHINE, "an uncorrected memory error", reset_gpu},
    {143, XID_MACHINE, "the GPU could not be initialised", reboot},
    {144, XID_MACHINE, "an NVLink error (SAW)", links},
    {145, XID_MACHINE, "an NVLink error (RLW)", links},
    {146, XID_MACHINE, "an NVLink error (TLW)", links},
    {147, XID_MACHINE, "an NVLink error (TREX)", links},
    {148, XID_MACHINE, "an NVLink error (NVLPW)", links},
    {149, XID_MACHINE, "an NVLink error (NETIR)", links},
    {150, XID_MACHINE, "an NVLink error (MSE)", links},
    {154, XID_FOLLOWER, "the driver requests a recovery action", "take the action that the report names"},
    {156, XID_FOLLOWER, "a resource was retired", "reset the GPU when the job has ended"},
    {157, XID_MACHINE, "a resource could not be retired", reset_gpu},
    {158, XID_MACHINE, "a fatal time-out of the GPU", reset_gpu},
};

const struct xid_meaning *xid_meaning(int number)
{
    static const struct xid_meaning unknown = {0, XID_MACHINE, "an error that is not in muster's table",
                                               "look it up in NVIDIA's list of Xid errors"};
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].number == number)
            return &meanings[i];
    return &unknown;
}

/* Reads exactly digits hexadecimal digits or, where longer is set, more. */
static const char *take_hex(const char *at, int digits, bool longer, unsigned *out)
{
    int taken = 0;
    *out = 0;
    for (; isxdigit((unsigned char)*at) && taken < 8; at++, taken++)
        *out = *out * 16 + (unsigned)(*at <= '9' ? *at - '0' : (*at | 32) - 'a' + 10);
    return taken == digits || (longer && taken > digits) ? at : NULL;
}

/* The address at the beginning of text; returns the text after it, NULL where there is none. */
static const char *take_pci(const char *text, char out[XID_PCI_LIMIT])
{
    unsigned domain, bus, device;
    const char *at = take_hex(text, 4, true, &domain);
    if (!at || *at != ':')
        return NULL;
    at = take_hex(at + 1, 2, false, &bus);
    if (!at || *at != ':')
        return NULL;
    at = take_hex(at + 1, 2, false, &device);
    if (!at || domain > 0xfffff)
        return NULL;
    (void)snprintf(out, XID_PCI_LIMIT, "%04x:%02x:%02x", domain, bus & 0xff, device & 0xff);
    return at;
}

bool xid_pci_normalize(const char *text, char out[XID_PCI_LIMIT])
{
    const char *end = take_pci(text, out);
    return end && (*end == '\0' || *end == '.' || *end == '\n');
}

static bool xid_take_number(const char *at, int *out)
{
    if (!isdigit((unsigned char)*at))
        return false;
    *out = 0;
    for (; isdigit((unsigned char)*at); at++) {
        if (*out > 99999999)
            return false;
        *out = *out * 10 + (*at - '0');
    }
    return true;
}

bool xid_parse(const char *line, struct xid_report *out)
{
    static const char mark[] = "NVRM: Xid (";
    size_t length = strcspn(line, "\n");
    const char *at = memmem(line, length, mark, sizeof mark - 1);
    if (!at)
        return false;
    *out = (struct xid_report){0};
    at += sizeof mark - 1;
    if (!strncmp(at, "PCI:", 4)) /* older drivers leave it out */
        at += 4;
    at = take_pci(at, out->pci);
    if (!at)
        return false;
    at += strcspn(at, ")\n"); /* a function, where there is one */
    if (strncmp(at, "): ", 3) != 0 || !xid_take_number(at + 3, &out->number) || out->number == 0)
        return false;
    const char *pid = memmem(at, (size_t)(line + length - at), "pid=", 4);
    if (pid) { /* a number, quoted or not, or '<unknown>' */
        pid += strlen("pid=");
        (void)xid_take_number(pid + (*pid == '\''), &out->pid);
    }
    return true;
}

static bool is_better(const struct xid_report *a, const struct xid_report *b)
{
    return !b || xid_meaning(a->number)->kind > xid_meaning(b->number)->kind;
}

const struct xid_report *xid_of_worker(const struct xid_report *reports, int count, int pid, const char *pci,
                                       const struct xid_report **elsewhere)
{
    const struct xid_report *own = NULL, *other = NULL;
    for (int i = 0; i < count; i++) {
        const struct xid_report *report = &reports[i];
        if (xid_meaning(report->number)->kind == XID_FOLLOWER)
            continue;
        bool by_pid = pid > 0 && report->pid == pid, by_pci = *pci && !strcmp(report->pci, pci);
        bool anothers = *pci && !by_pci;
        if ((by_pid || by_pci) && is_better(report, own))
            own = report;
        else if (!by_pid && !anothers && is_better(report, other))
            other = report;
    }
    *elsewhere = own ? NULL : other;
    return own;
}
