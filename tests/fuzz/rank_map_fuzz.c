/* rank_map_fuzz.c - arbitrary text as the small lists of the launcher: --redirects maps, lists of CPUs,
 * Slurm's lists of hosts, a hosts file. Accepted input keeps its promises. */
#include <stdlib.h>
#include <string.h>

#include "launcher/config/config.h"
#include "launcher/config/node_identity.h"
#include "launcher/host/machine.h"
#include "launcher/host/numa.h"
#include "proto/base/mem.h"
#include "proto/slurm.h"
#include "tests/fuzz/random_main.h"

static void check(bool holds)
{
    if (!holds)
        abort();
}

static void check_streams(const char *text)
{
    bool good = config_streams(text, 0) >= 0;
    for (int local_rank = 0; local_rank < 4; local_rank++) {
        int bits = config_streams(text, local_rank);
        check((bits >= 0) == good &&
              bits <= STREAM_BOTH); /* whether it is malformed is no matter of the rank */
    }
}

/* A printed set reads back as the same set. */
static void check_cpus(const char *text)
{
    struct numa_mask mask, again;
    scope_buffer printed = {0};
    if (!numa_mask_parse(text, &mask))
        return;
    numa_mask_print(&mask, &printed);
    check(!printed.failed && numa_mask_parse(printed.data ? printed.data : "", &again));
    check(!memcmp(&mask, &again, sizeof mask));
}

static void check_hosts(const char *text)
{
    char host[64];
    struct muster_error err = {0};
    int64_t count = slurm_host_count(text, &err);
    if (count < 0) {
        check(*err.text != 0);
        return;
    }
    check(count >= 1 && count <= SLURM_HOSTS_LIMIT);
    for (int64_t i = 0; i<count; i += count> 8 ? count / 8 : 1)
        check(slurm_host_at(text, i, host, sizeof host, &err) == 0 || err.code == MUSTER_E_LIMIT);
    check(slurm_host_at(text, count, host, sizeof host, &err) < 0 && err.code == MUSTER_E_NOT_FOUND);
}

static void check_tasks(const char *text)
{
    struct muster_error err = {0};
    int64_t tasks = slurm_tasks_at(text, 3, &err);
    check(tasks > 0 ? !err.code : *err.text != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char full[NODE_IDENTITY_HOST_SIZE];
    char *text = mem_strndup((const char *)data, size);
    check(text != NULL);
    check_streams(text);
    check_cpus(text);
    check_hosts(text);
    check_tasks(text);
    machine_full_name(text, "j-1", full);
    check(!*full || !strncmp(full, "j-1.", 4));
    mem_free(text);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char map[] = "0:1,1:2,12:3", cpus[] = "0-3,8,12-15",
                      hosts[] = "n[01-04,7],gpu-a,r[1-2]n[1-3]-ib",
                      file[] = "127.0.0.1 localhost\n10.1.2.3 j-1.svc.ns j-1 # ours\n";
    const struct fuzz_seed seeds[] = {
        {map, sizeof map - 1}, {cpus, sizeof cpus - 1}, {hosts, sizeof hosts - 1}, {file, sizeof file - 1}};
    return fuzz_main(argc, argv, seeds, 4);
}
#endif
