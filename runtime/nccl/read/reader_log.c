/* reader_log.c - the driver's error reports in the kernel log.
 *
 * /dev/kmsg gives one record a read, "<level>,<number>,<microseconds since boot>,<flags>;<text>\n",
 * followed by lines that begin with a blank. Containers seldom have it: the reports are then unknown,
 * which is not a fault. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/kernel_log.h"
#include "proto/xid.h"
#include "runtime/nccl/read/reader_internal.h"

/* Room for a new report; the oldest is dropped. */
static struct description_xid *next_report(struct reader *r)
{
    struct description *out = r->out;
    if (out->xid_count < DESCRIPTION_XIDS_LIMIT)
        return reader_grow(r, &out->xids, &out->xid_count, sizeof *out->xids);
    memmove(out->xids, out->xids + 1, (DESCRIPTION_XIDS_LIMIT - 1) * sizeof *out->xids);
    out->omitted++;
    struct description_xid *last = &out->xids[DESCRIPTION_XIDS_LIMIT - 1];
    *last = (struct description_xid){0};
    return last;
}

/* Seconds since a record was written; -1 if it has no time. */
static int64_t age_of(const char *record, int64_t uptime_ns)
{
    long long since_boot_us;
    if (sscanf(record, "%*u,%*u,%lld,", &since_boot_us) != 1 || since_boot_us < 0)
        return -1;
    int64_t age_ns = uptime_ns - (int64_t)since_boot_us * NS_PER_US;
    return age_ns > 0 ? age_ns / NS_PER_S : 0; /* the log's clock and ours differ slightly */
}

struct log_reading {
    struct reader *r;
    int64_t uptime_ns;
};

static void log_take_line(struct reader *r, const char *line, int64_t uptime_ns)
{
    struct xid_report report;
    if (!xid_parse(line, &report))
        return;
    struct description_xid *xid = next_report(r);
    if (!xid)
        return;
    const char *text = strstr(line, "NVRM: Xid");
    xid->xid = report.number;
    READER_SET(xid->pci, report.pci);
    READER_SET(xid->text, text ? text : line);
    xid->age_s = age_of(line, uptime_ns);
}

static void log_take_record(void *context, char *record)
{
    const struct log_reading *reading = context;
    for (char *line = record; *line;) {
        size_t size = strcspn(line, "\n");
        bool last = !line[size];
        line[size] = 0;
        log_take_line(reading->r, line, reading->uptime_ns);
        line += size + !last;
    }
}

int reader_kernel_log(const char *root, int64_t uptime_ns, struct description *description,
                      struct muster_error *err)
{
    enum { RECORDS_LIMIT = 200000 };
    const struct reader_options options = {.root = root};
    struct reader r = {.options = &options, .out = description};
    struct log_reading reading = {&r, uptime_ns};
    char path[READER_PATH];
    if (!reader_path(&r, path, "/dev/kmsg"))
        return 0;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        description->kernel_log_lost = kernel_log_read(fd, RECORDS_LIMIT, log_take_record, &reading);
    return r.failed ? error_set(err, MUSTER_E_NOMEM, "no memory to describe this machine") : 0;
}
