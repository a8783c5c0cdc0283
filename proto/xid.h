/* xid.h - pure: the NVIDIA driver's error reports in the kernel log ("NVRM: Xid (PCI:0000:3b:00): 79,
 * ...") and the meaning of their numbers. */
#ifndef MUSTER_PROTO_XID_H
#define MUSTER_PROTO_XID_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { XID_PCI_LIMIT = 16 }; /* "0000:3b:00" */

enum xid_kind {
    XID_FOLLOWER, /* a report of an action after an error, or a change of state: not a cause */
    XID_PROGRAM,  /* usually caused by the program */
    XID_MACHINE,  /* the GPU, its memory, its links or its firmware */
};

struct xid_meaning {
    int number;
    enum xid_kind kind;
    const char *what;   /* "the GPU has fallen off the bus" */
    const char *advice; /* what to do, an imperative without a full stop */
};

/* Never NULL: a number that is not in the table is XID_MACHINE with a text to that effect. */
const struct xid_meaning *xid_meaning(int number);

struct xid_report {
    int number;
    char pci[XID_PCI_LIMIT]; /* domain:bus:device in lower case, without the function */
    int pid;                 /* named by the driver, in the machine's own numbering; 0: none */
};

/* Whether the line (of dmesg or /dev/kmsg, NUL- or newline-terminated) is such a report. */
bool xid_parse(const char *line, struct xid_report *out);
/* A PCI address ("00000000:3B:00.0" as NVML and /proc/driver/nvidia write it) as in xid_report.pci; false
 * where it is none. */
bool xid_pci_normalize(const char *text, char out[XID_PCI_LIMIT]);

/* Among count reports of one round the report that explains the end of the worker with this pid (0: unknown
 * to the driver) on the GPU of this PCI address ("": unknown); machine before program, then the first.
 * NULL: none of them is known to be about this worker; *elsewhere is then the best report that may be, or
 * NULL. */
const struct xid_report *xid_of_worker(const struct xid_report *reports, int count, int pid, const char *pci,
                                       const struct xid_report **elsewhere);

#ifdef __cplusplus
}
#endif
#endif
