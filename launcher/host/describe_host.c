/* describe_host.c - see describe_host.h. */
#include "launcher/host/describe_host.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launcher/host/isolated_call.h"
#include "launcher/host/machine.h"
#include "launcher/loop/resolver.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/nccl/read/reader.h"

static const int64_t name_patience_ns = 300 * NS_PER_MS, disk_patience_ns = 600 * NS_PER_MS;

/* --- the master's address --- */

static int ask_name(void *context, void *result, struct muster_error *err)
{
    char addresses[RESOLVER_ADDRESSES_KEPT][ADDRESS_TEXT];
    int count = resolver_ask(context, addresses); /* as the agents do */
    if (count < 0)
        return error_set(err, MUSTER_E_NOT_FOUND, "%s", gai_strerror(count));
    memcpy(result, addresses[0], ADDRESS_TEXT);
    return 0;
}

/* "" where the name has no address, or not in time. Not by a thread (resolver.h): isolated_call later
 * needs a program with a single thread. */
static void find_address(const char *master, char address[ADDRESS_TEXT])
{
    scope_free char *name = master && *master ? mem_strdup(master) : NULL;
    *address = 0;
    if (name && address_is_numeric(name))
        (void)snprintf(address, ADDRESS_TEXT, "%s", name);
    else if (name &&
             isolated_call(ask_name, name, address, ADDRESS_TEXT, name_patience_ns, "its name", NULL) < 0)
        *address = 0;
}

/* --- the disk --- */

static int ask_disk(void *context, void *result, struct muster_error *err)
{
    (void)err;
    reader_disk_read(context, result);
    return 0;
}

static void describe_disk(const char *log_dir, struct description *description)
{
    struct reader_disk disk = {.free_bytes = -1, .free_inodes = -1};
    struct muster_error err = {0};
    scope_free char *directory = log_dir ? mem_strdup(log_dir) : NULL;
    if (isolated_call(ask_disk, directory, &disk, sizeof disk, disk_patience_ns, "the disk", &err) < 0) {
        disk = (struct reader_disk){.free_bytes = -1, .free_inodes = -1};
        (void)snprintf(disk.path, sizeof disk.path, "%s", log_dir ? log_dir : "");
        (void)snprintf(disk.error, sizeof disk.error, "%.*s", (int)sizeof disk.error - 1, err.text);
    }
    reader_disk_keep(&disk, description);
}

/* --- all of it --- */

static int describe_gpus(const struct describe_request *request, struct description *description,
                         struct muster_error *err)
{
    if (nvml_probe_describe(request->nvml, request->nvml_patience_ns, description, err) < 0 ||
        reader_distances("", description, err) < 0 ||
        reader_kernel_log("", clock_now(NULL).ns, description, err) < 0)
        return -1;
    if (description->local_workers == 0)
        description->local_workers = description->gpu_count > 0 ? description->gpu_count : 1;
    return 0;
}

int describe_host(const struct describe_request *request, struct description *description,
                  struct muster_error *err)
{
    char host[MACHINE_NAME_SIZE], address[ADDRESS_TEXT];
    machine_host_name(host);
    find_address(request->master, address);
    struct reader_options options = {
        .root = "",
        .environment = request->environment,
        .home = getenv("HOME"),
        .host = host,
        .master = request->master,
        .master_address = *address ? address : NULL,
        .dialled_address = *address && resolver_is_local(address) ? address : NULL,
        .log_dir = request->log_dir,
        .nnodes = request->nnodes,
        .local_workers = request->local_workers,
        .gpus_wanted = request->gpus_wanted,
        .thorough = true,
    };
    if (reader_read(&options, description, err) < 0)
        return -1;
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    struct tm parts = {0};
    char when[32] = "";
    if (gmtime_r(&now, &parts))
        (void)strftime(when, sizeof when, " at %Y-%m-%dT%H:%M:%SZ", &parts);
    (void)snprintf(description->source, sizeof description->source, "read on %.200s%s", host, when);
    describe_disk(request->log_dir, description);
    if (describe_gpus(request, description, err) == 0)
        return 0;
    description_free(description);
    return -1;
}
