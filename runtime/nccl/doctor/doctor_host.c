/* doctor_host.c - checks of everything around the GPUs: network, memory, limits, disk, clock, processes. */
#include <math.h>
#include <string.h>

#include "runtime/nccl/doctor/doctor_internal.h"

static const int64_t mib = 1 << 20, gib = 1 << 30;
static const double clock_warning_s = 2,
                    clock_unfit_s = 300; /* certificates and object stores tolerate at most five minutes */

static bool has_gpus(const struct examination *e)
{
    return e->machine->gpu_count > 0 || e->machine->device_files > 0;
}

static int workers(const struct examination *e)
{
    return e->machine->local_workers > 0 ? e->machine->local_workers : 1;
}

static void interface(struct examination *e)
{
    const struct description *m = e->machine;
    const struct description_interface *route = NULL;
    for (int i = 0; i < m->interface_count; i++)
        if (m->interfaces[i].to_master || (!route && m->interfaces[i].default_route))
            route = &m->interfaces[i];
    if (m->nnodes > 1 && *m->master && !*m->master_address)
        doctor_add(e, DOCTOR_WARNING,
                   "the Service or the pod does not exist yet, or the name is wrong: getent hosts NAME",
                   "'%.100s' has no address yet", m->master);
    else if (!route && m->nnodes > 1)
        doctor_add(e, DOCTOR_UNFIT, "see ip route get ADDRESS", "no route to %s",
                   *m->master_address ? m->master_address : "the master");
    else if (route && (!route->up || (!route->running && !route->loopback)))
        doctor_add(e, m->nnodes > 1 ? DOCTOR_UNFIT : DOCTOR_WARNING,
                   "ip link set NAME up; check the cable and the switch's port", "%s is %s", route->name,
                   route->up ? "up without a carrier" : "down");
    else if (route)
        doctor_add(e, DOCTOR_FINE, "", "%s%s%s, MTU %d", route->name,
                   *m->master_address ? " is on the route to " : "", m->master_address, route->mtu);
    else
        doctor_add(e, DOCTOR_SKIPPED, "", "one node, no default route");
}

static void down_interfaces(struct examination *e)
{
    for (int i = 0; i < e->machine->interface_count; i++) {
        const struct description_interface *interface = &e->machine->interfaces[i];
        if (!interface->virtual_ && !interface->loopback && *interface->vendor && interface->up &&
            !interface->running)
            doctor_add(e, DOCTOR_WARNING, "check the cable and the switch's port, or take the interface down",
                       "%s is up without a carrier", interface->name);
    }
}

static void rdma(struct examination *e)
{
    int active = 0;
    for (int i = 0; i < e->machine->rdma_count; i++) {
        const struct description_rdma *port = &e->machine->rdma[i];
        active += !strcmp(port->state, "ACTIVE");
        if (*port->state && strcmp(port->state, "ACTIVE"))
            doctor_add(e, DOCTOR_WARNING,
                       "check the cable, the switch's port and (InfiniBand) the subnet manager",
                       "%s port %d is %s%s%s", port->device, port->port, port->state,
                       *port->phys_state ? ", physically " : "", port->phys_state);
        else if (port->uverbs_refused)
            doctor_add(e, DOCTOR_WARNING,
                       "chmod 666 /dev/infiniband/uverbs* (for good: a udev rule), or make the user a member "
                       "of their group",
                       "%s is ACTIVE but this user may not write to its file in /dev/infiniband",
                       port->device);
        else if (!port->uverbs)
            doctor_add(e, DOCTOR_WARNING, "request the RDMA resource for the pod; without it NCCL uses TCP",
                       "%s is ACTIVE but /dev/infiniband cannot be opened", port->device);
    }
    if (active)
        doctor_add(e, DOCTOR_FINE, "", "%d RDMA ports are ACTIVE", active);
}

static void shared_memory(struct examination *e)
{
    const int64_t size = e->machine->shm_bytes;
    static const char cure[] = "mount an emptyDir of medium Memory on /dev/shm, or docker run --shm-size=1g; "
                               "it counts as the pod's memory";
    if (size < 0)
        doctor_add(e, DOCTOR_WARNING, cure, "/dev/shm does not exist");
    else if (size < 64 * mib * (workers(e) > 1 ? workers(e) : 1))
        doctor_add(e, has_gpus(e) ? DOCTOR_UNFIT : DOCTOR_WARNING, cure,
                   "/dev/shm has %lld MiB for %d workers", (long long)(size / mib), workers(e));
    else if (has_gpus(e) && workers(e) > 1 && size < gib)
        doctor_add(e, DOCTOR_WARNING, cure, "/dev/shm has %lld MiB for %d workers", (long long)(size / mib),
                   workers(e));
    else if (e->machine->shm_free_bytes >= 0 && e->machine->shm_free_bytes < size / 10)
        doctor_add(e, DOCTOR_WARNING, "ls -l /dev/shm; files of dead processes stay until they are removed",
                   "/dev/shm has %lld of %lld MiB free", (long long)(e->machine->shm_free_bytes / mib),
                   (long long)(size / mib));
    else
        doctor_add(e, DOCTOR_FINE, "", "/dev/shm has %lld MiB", (long long)(size / mib));
}

static void memlock(struct examination *e)
{
    const int64_t limit = e->machine->memlock_bytes;
    if (limit == -2)
        return;
    if (limit >= 0 && e->machine->ipc_lock == DESCRIPTION_YES)
        doctor_add(e, DOCTOR_FINE, "", "memory may be locked without limit, by the capability IPC_LOCK");
    else if (limit >= 0 && limit < gib && e->machine->rdma_count > 0)
        doctor_add(
            e, DOCTOR_WARNING,
            "ulimit -l unlimited (limits.conf, systemd LimitMEMLOCK); in a pod the capability IPC_LOCK",
            "only %lld KiB may be locked, but RDMA registers memory", (long long)(limit / 1024));
    else if (limit < 0)
        doctor_add(e, DOCTOR_FINE, "", "memory may be locked without limit");
    else
        doctor_add(e, DOCTOR_FINE, "", "%lld KiB may be locked; no RDMA here", (long long)(limit / 1024));
}

static void open_files(struct examination *e)
{
    const int64_t hard = e->machine->nofile_hard;
    if (hard >= 0 && hard < 4096)
        doctor_add(e, DOCTOR_WARNING,
                   "raise it to 65536 (ulimit -Hn, LimitNOFILE, the container runtime's default)",
                   "%lld files may be open at most", (long long)hard);
    else if (hard != -2)
        doctor_add(e, DOCTOR_FINE, "",
                   hard < 0 ? "any number of files may be open" : "%lld files may be open", (long long)hard);
}

static void disk(struct examination *e)
{
    const struct description *m = e->machine;
    static const char cure[] = "make room, or choose another --log-dir";
    if (m->disk_free_bytes < 0 && *m->disk_error)
        doctor_add(e, DOCTOR_WARNING, "is its file server reachable? choose another --log-dir",
                   "%.120s: %.100s", m->disk_path, m->disk_error);
    else if (m->disk_free_bytes < 0)
        doctor_add(e, DOCTOR_SKIPPED, "", "the log directory's disk was not read");
    else if (m->disk_free_bytes < 16 * mib || m->disk_free_inodes == 0)
        doctor_add(e, DOCTOR_UNFIT, cure, "%.120s has %lld MiB and %lld files free", m->disk_path,
                   (long long)(m->disk_free_bytes / mib), (long long)m->disk_free_inodes);
    else if (*m->disk_error)
        doctor_add(e, DOCTOR_UNFIT, "give write permission, or choose another --log-dir",
                   "%.120s is not writable: %.100s", m->disk_path, m->disk_error);
    else if (m->disk_free_bytes < gib)
        doctor_add(e, DOCTOR_WARNING, cure, "%.120s has %lld MiB free", m->disk_path,
                   (long long)(m->disk_free_bytes / mib));
    else
        doctor_add(e, DOCTOR_FINE, "", "%.120s has %lld GiB free", m->disk_path,
                   (long long)(m->disk_free_bytes / gib));
}

static void memory(struct examination *e)
{
    const struct description *m = e->machine;
    int64_t limit =
        m->memory_limit_bytes > 0 && (m->memory_bytes < 0 || m->memory_limit_bytes < m->memory_bytes)
            ? m->memory_limit_bytes
            : m->memory_bytes;
    if (limit < 0)
        return;
    if (m->memory_used_bytes > limit / 10 * 9)
        doctor_add(e, DOCTOR_WARNING,
                   "another program uses it, or the pod's limit is small: an out-of-memory kill is near",
                   "%lld of %lld MiB are in use", (long long)(m->memory_used_bytes / mib),
                   (long long)(limit / mib));
    else
        doctor_add(e, DOCTOR_FINE, "", "%lld MiB%s", (long long)(limit / mib),
                   limit == m->memory_limit_bytes ? " (the container's limit)" : "");
}

static void cpus(struct examination *e)
{
    double cores = e->machine->cpu_quota > 0 && e->machine->cpu_quota < e->machine->cpus
                       ? e->machine->cpu_quota
                       : e->machine->cpus;
    if (cores <= 0)
        return;
    if (cores < workers(e))
        doctor_add(e, DOCTOR_WARNING, "raise limits.cpu: a worker without a core starves its GPU",
                   "%.1f cores for %d workers", cores, workers(e));
    else
        doctor_add(e, DOCTOR_FINE, "", "%.1f cores for %d worker%s", cores, workers(e),
                   workers(e) == 1 ? "" : "s");
}

static void clock_(struct examination *e)
{
    double offset = fabs(e->machine->clock_offset_s);
    static const char cure[] =
        "start chronyd or systemd-timesyncd on the node; logs, certificates and object stores depend on it";
    if (offset >= clock_warning_s)
        doctor_add(e, offset >= clock_unfit_s ? DOCTOR_UNFIT : DOCTOR_WARNING, cure,
                   "this clock is %.1f s %s the clock of files in %.120s", offset,
                   e->machine->clock_offset_s > 0 ? "ahead of" : "behind", e->machine->disk_path);
    else if (e->machine->clock_synchronized == DESCRIPTION_NO)
        doctor_add(e, DOCTOR_WARNING, cure,
                   "no time service disciplines the clock (adjtimex reports it as unsynchronized)");
    else if (e->machine->clock_synchronized == DESCRIPTION_YES)
        doctor_add(e, DOCTOR_FINE, "", "the clock is synchronized");
}

static void init(struct examination *e)
{
    if (e->machine->pid1_is_shell)
        doctor_add(e, DOCTOR_WARNING,
                   "put exec before the last command: sh -c 'prepare; exec torchrun train.py'",
                   "PID 1 is %s, which does not forward SIGTERM: the pod is killed without a last checkpoint",
                   e->machine->pid1);
}

static void sys(struct examination *e)
{
    if (!e->machine->sys_mounted)
        doctor_add(e, DOCTOR_WARNING, "mount /sys in the container: NCCL finds PCI and NVLink there",
                   "/sys is not mounted");
}

static void network_limits(struct examination *e)
{
    const struct description *m = e->machine;
    if (m->nnodes > 1 && m->somaxconn >= 0 && m->somaxconn < 512)
        doctor_add(e, DOCTOR_WARNING, "sysctl net.core.somaxconn=4096",
                   "at most %d connections may wait: if many ranks start at once some are reset",
                   m->somaxconn);
    if (m->port_last > 0 && m->port_last - m->port_first < 4096)
        doctor_add(e, DOCTOR_WARNING, "sysctl net.ipv4.ip_local_port_range=\"32768 60999\"",
                   "ports %d to %d are few for NCCL's connections", m->port_first, m->port_last);
}

static void libraries(struct examination *e)
{
    const struct description *m = e->machine;
    if (*m->nccl)
        doctor_add(e, DOCTOR_FINE, "", "NCCL %s (%.120s)%s%.60s", m->nccl, m->nccl_path,
                   *m->net_plugin ? ", plug-in " : "", m->net_plugin);
    else if (has_gpus(e))
        doctor_add(e, DOCTOR_SKIPPED, "", "no NCCL library found: a Python package may bring one");
}

const struct doctor_check doctor_host_checks[] = {
    {"interface", interface},
    {"carrier", down_interfaces},
    {"rdma", rdma},
    {"shm", shared_memory},
    {"memlock", memlock},
    {"nofile", open_files},
    {"disk", disk},
    {"memory", memory},
    {"cpus", cpus},
    {"clock", clock_},
    {"pid1", init},
    {"sys", sys},
    {"network-limits", network_limits},
    {"libraries", libraries},
    {0},
};
