/* description_table.c - every field of a description: its name in JSON, its type, and its "unknown" value. */
#include "runtime/nccl/describe/description_table.h"

#define TEXT(record, member)                                                                                 \
    {                                                                                                        \
#member, DESCRIPTION_FIELD_TEXT, offsetof(struct record, member),                                    \
            sizeof((struct record *)0)->member, 0, NULL, NULL, 0                                             \
    }
#define FIELD(record, member, type_, unknown_)                                                               \
    {                                                                                                        \
#member, DESCRIPTION_FIELD_##type_, offsetof(struct record, member), 0, unknown_, NULL, NULL, 0      \
    }
#define INT(record, member, unknown_)   FIELD(record, member, INT, unknown_)
#define INT64(record, member, unknown_) FIELD(record, member, INT64, unknown_)
#define BOOL(record, member)            FIELD(record, member, BOOL, 0)
#define FLAG(record, member)            FIELD(record, member, FLAG, DESCRIPTION_UNKNOWN)
#define DOUBLE(record, member)          FIELD(record, member, DOUBLE, 0)
#define NAME(record, member, names_, unknown_)                                                               \
    {                                                                                                        \
#member, DESCRIPTION_FIELD_NAME, offsetof(struct record, member), 0, unknown_, names_, NULL, 0       \
    }
#define LIST(record, member, count_member, table_)                                                           \
    {                                                                                                        \
#member, DESCRIPTION_FIELD_LIST, offsetof(struct record, member), 0, 0, NULL, &(table_),             \
            offsetof(struct record, count_member)                                                            \
    }
#define TABLE(name, record)                                                                                  \
    static const struct description_table name = {                                                           \
        name##_fields, sizeof name##_fields / sizeof *name##_fields, sizeof(struct record)}

static const char *const scopes[] = {"global", "link-local", "loopback", NULL};
static const char *const gid_types[] = {"IB", "RoCE v1", "RoCE v2", "unknown", NULL};
static const char *const distances[] = {"X", "NV", "PIX", "PXB", "PHB", "NODE", "SYS", "unknown", NULL};

static const struct description_field address_fields[] = {
    TEXT(description_address, text),
    INT(description_address, family, 0),
    INT(description_address, prefix, 0),
    NAME(description_address, scope, scopes, DESCRIPTION_GLOBAL),
};
TABLE(address, description_address);

static const struct description_field interface_fields[] = {
    TEXT(description_interface, name),
    BOOL(description_interface, up),
    BOOL(description_interface, running),
    BOOL(description_interface, loopback),
    {"virtual", DESCRIPTION_FIELD_BOOL, offsetof(struct description_interface, virtual_), 0, 0, NULL, NULL,
     0},
    TEXT(description_interface, kind),
    TEXT(description_interface, vendor),
    INT64(description_interface, speed_mbit, -1),
    INT(description_interface, mtu, 0),
    INT(description_interface, numa_node, -1),
    TEXT(description_interface, pci),
    BOOL(description_interface, default_route),
    BOOL(description_interface, to_master),
    LIST(description_interface, addresses, address_count, address),
};
TABLE(interface, description_interface);

static const struct description_field gid_fields[] = {
    INT(description_gid, index, 0),
    TEXT(description_gid, text),
    NAME(description_gid, type, gid_types, DESCRIPTION_GID_UNKNOWN),
    BOOL(description_gid, ipv4),
    BOOL(description_gid, link_local),
    TEXT(description_gid, interface),
};
TABLE(gid, description_gid);

static const struct description_field rdma_fields[] = {
    TEXT(description_rdma, device),
    INT(description_rdma, port, 0),
    TEXT(description_rdma, vendor),
    TEXT(description_rdma, state),
    TEXT(description_rdma, phys_state),
    BOOL(description_rdma, ethernet),
    DOUBLE(description_rdma, rate_gbit),
    TEXT(description_rdma, interface),
    INT(description_rdma, numa_node, -1),
    TEXT(description_rdma, pci),
    BOOL(description_rdma, uverbs),
    BOOL(description_rdma, uverbs_refused),
    INT64(description_rdma, link_downed, -1),
    INT64(description_rdma, symbol_errors, -1),
    LIST(description_rdma, gids, gid_count, gid),
};
TABLE(rdma, description_rdma);

static const struct description_field gpu_fields[] = {
    INT(description_gpu, index, 0),
    TEXT(description_gpu, uuid),
    TEXT(description_gpu, name),
    TEXT(description_gpu, pci),
    INT(description_gpu, compute_major, 0),
    INT(description_gpu, compute_minor, 0),
    INT64(description_gpu, memory_bytes, -1),
    INT64(description_gpu, memory_used_bytes, -1),
    INT(description_gpu, numa_node, -1),
    TEXT(description_gpu, cpus),
    FLAG(description_gpu, mig),
    INT(description_gpu, mig_devices, 0),
    INT(description_gpu, nvlinks_up, -1),
    INT(description_gpu, nvlinks, -1),
    FLAG(description_gpu, ecc),
    INT64(description_gpu, ecc_uncorrected, -1),
    INT64(description_gpu, ecc_corrected, -1),
    INT64(description_gpu, ecc_uncorrected_now, -1),
    INT64(description_gpu, retired_pages, -1),
    FLAG(description_gpu, remap_pending),
    FLAG(description_gpu, remap_failed),
    TEXT(description_gpu, recovery_action),
    INT(description_gpu, pcie_generation, 0),
    INT(description_gpu, pcie_generation_max, 0),
    INT(description_gpu, pcie_width, 0),
    INT(description_gpu, pcie_width_max, 0),
    INT(description_gpu, temperature_c, -1),
    FIELD(description_gpu, throttle_reasons, UINT64, 0),
    INT(description_gpu, processes, -1),
    TEXT(description_gpu, fabric_state),
    TEXT(description_gpu, fabric_cluster),
    INT(description_gpu, fabric_clique, -1),
    BOOL(description_gpu, lost),
    TEXT(description_gpu, error),
};
TABLE(gpu, description_gpu);

static const struct description_field pair_fields[] = {
    INT(description_link, a, 0),
    INT(description_link, b, 0),
    NAME(description_link, distance, distances, DESCRIPTION_DISTANCE_UNKNOWN),
    INT(description_link, nvlinks, 0),
    FLAG(description_link, p2p_read),
    FLAG(description_link, p2p_write),
    FLAG(description_link, acs),
};
TABLE(pair, description_link);

static const struct description_field process_fields[] = {
    INT(description_process, pid, 0), INT(description_process, gpu, 0),
    TEXT(description_process, name),  INT64(description_process, memory_bytes, -1),
    BOOL(description_process, ours),
};
TABLE(process, description_process);

static const struct description_field xid_fields[] = {
    INT(description_xid, xid, 0),
    TEXT(description_xid, pci),
    TEXT(description_xid, text),
    INT64(description_xid, age_s, -1),
};
TABLE(xid, description_xid);

static const struct description_field setting_fields[] = {
    TEXT(description_setting, name),
    TEXT(description_setting, value),
    TEXT(description_setting, source),
};
TABLE(setting, description_setting);

static const struct description_field description_fields[] = {
    INT(description, version, 0),
    TEXT(description, source),
    TEXT(description, host),
    TEXT(description, kernel),
    TEXT(description, vendor),
    TEXT(description, product),
    BOOL(description, wsl),
    BOOL(description, container),
    BOOL(description, kubernetes),
    TEXT(description, node_pool),
    FLAG(description, sys_nice),
    FLAG(description, ipc_lock),
    BOOL(description, sys_mounted),
    TEXT(description, master),
    TEXT(description, master_address),
    INT(description, nnodes, 0),
    INT(description, local_workers, 0),
    INT64(description, gpus_wanted, -1),
    TEXT(description, log_dir),
    LIST(description, interfaces, interface_count, interface),
    LIST(description, rdma, rdma_count, rdma),
    LIST(description, gpus, gpu_count, gpu),
    LIST(description, gpu_links, gpu_link_count, pair),
    LIST(description, nic_links, nic_link_count, pair),
    LIST(description, interface_links, interface_link_count, pair),
    LIST(description, gpu_processes, gpu_process_count, process),
    LIST(description, xids, xid_count, xid),
    BOOL(description, kernel_log_lost),
    INT(description, omitted, 0),
    FLAG(description, nvml),
    TEXT(description, nvml_error),
    TEXT(description, visible_devices),
    INT(description, device_files, 0),
    INT(description, pci_gpus, -1),
    TEXT(description, driver),
    TEXT(description, cuda_driver),
    FLAG(description, open_kernel_module),
    FLAG(description, peermem),
    FLAG(description, fabric_manager),
    TEXT(description, nccl),
    TEXT(description, nccl_path),
    TEXT(description, net_plugin),
    TEXT(description, cloud),
    TEXT(description, topology_file),
    INT64(description, shm_bytes, -1),
    INT64(description, shm_free_bytes, -1),
    INT64(description, memlock_bytes, -2),
    INT64(description, nofile_soft, -2),
    INT64(description, nofile_hard, -2),
    INT64(description, stack_bytes, -2),
    INT64(description, core_bytes, -2),
    INT(description, cpus, 0),
    DOUBLE(description, cpu_quota),
    INT(description, numa_nodes, 0),
    INT64(description, memory_bytes, -1),
    INT64(description, memory_limit_bytes, -1),
    INT64(description, memory_used_bytes, -1),
    INT64(description, disk_free_bytes, -1),
    INT64(description, disk_free_inodes, -1),
    TEXT(description, disk_path),
    TEXT(description, disk_error),
    DOUBLE(description, clock_offset_s),
    FLAG(description, clock_synchronized),
    INT(description, somaxconn, -1),
    INT(description, port_first, 0),
    INT(description, port_last, 0),
    BOOL(description, pid1_is_shell),
    TEXT(description, pid1),
    LIST(description, settings, setting_count, setting),
};
TABLE(description, description);

const struct description_table *description_table(void)
{
    return &description;
}

void description_gpu_init(struct description_gpu *gpu_)
{
    description_record_init(&gpu, gpu_);
}

void description_link_init(struct description_link *link)
{
    description_record_init(&pair, link);
}

void description_process_init(struct description_process *process_)
{
    description_record_init(&process, process_);
}

_Static_assert(sizeof(enum description_distance) == sizeof(int) &&
                   sizeof(enum description_scope) == sizeof(int) &&
                   sizeof(enum description_gid_type) == sizeof(int),
               "enums are read and written as int");
