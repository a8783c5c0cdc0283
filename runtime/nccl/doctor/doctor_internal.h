/* doctor_internal.h - shared by the checks. A check examines one thing and adds one row, or one for each
 * device that has a fault. */
#ifndef MUSTER_RUNTIME_NCCL_DOCTOR_DOCTOR_INTERNAL_H
#define MUSTER_RUNTIME_NCCL_DOCTOR_DOCTOR_INTERNAL_H

#include "runtime/nccl/doctor/doctor.h"

struct examination {
    const struct description *machine;
    struct doctor_report *report;
    const char *name; /* name of the row */
    int capacity;
    bool failed; /* no memory */
};

/* cure "" if there is nothing to do. */
void doctor_add(struct examination *e, enum doctor_status status, const char *cure, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

struct doctor_check {
    const char *name;
    void (*run)(struct examination *e);
};
extern const struct doctor_check doctor_gpu_checks[], doctor_host_checks[]; /* end with an empty entry */

#endif
