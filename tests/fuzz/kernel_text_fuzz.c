/* kernel_text_fuzz.c - arbitrary text as a record of the kernel log, a list of cgroup counters, a
 * process's cgroups and
 * CUDA_VISIBLE_DEVICES: nothing is read beyond its end, and results are in its range. */
#include <stdlib.h>
#include <string.h>

#include "launcher/verdict/kernel_evidence.h"
#include "proto/base/cgroup.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/xid.h"
#include "tests/fuzz/random_main.h"

static void check(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kernel_evidence_gpu gpus[] = {{"0000:3b:00", "GPU-aaa"}, {"0000:5e:00", "GPU-bbb"}};
    struct xid_report report;
    char pci[FAILURE_PCI_LIMIT];
    char *text = mem_strndup((const char *)data, size);
    check(text != NULL);
    if (xid_parse(text, &report))
        check(report.number > 0 && report.pid >= 0 && xid_pci_normalize(report.pci, pci) &&
              !strcmp(pci, report.pci));
    if (xid_pci_normalize(text, pci))
        check(strlen(pci) < sizeof pci);
    check(text_row(text, "oom_kill") >= -1);
    struct cgroup_line group;
    for (const char *at = text; cgroup_next_line(&at, "memory", &group);)
        check(group.path >= text && group.path + group.path_length <= at && group.controllers >= text &&
              group.controllers + group.controllers_length < group.path);
    check(cgroup_quota_second(text) >= 0 && cgroup_quota_first(text, text) >= 0);
    for (int rank = -1; rank < 4; rank++)
        check(strlen(kernel_evidence_gpu_of(gpus, 2, text, rank)) < FAILURE_PCI_LIMIT);
    mem_free(text);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char line[] = "4,1234,99,-;NVRM: Xid (PCI:0000:3B:00): 31, pid=4242, name=python3, Ch 8\n";
    static const char counters[] = "low 0\nmax 2\noom 3\noom_kill 4\n", devices[] = "1, 0,GPU-bbb",
                      groups[] = "5:memory:/box/\n4:cpu,cpuacct:/box\n0::/\n";
    const struct fuzz_seed seeds[] = {{line, sizeof line - 1},
                                      {counters, sizeof counters - 1},
                                      {devices, sizeof devices - 1},
                                      {groups, sizeof groups - 1}};
    return fuzz_main(argc, argv, seeds, 4);
}
#endif
