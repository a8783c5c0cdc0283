/* description.h - one machine as far as NCCL's environment and a job's health depend on it: a plain
 * struct.
 *
 * The reader (reader.h) fills it from /sys, /proc, rtnetlink and NVML; description_json.h writes and reads
 * it as JSON, so that every decision, test and bug report can be replayed from a file. Decisions
 * (decide.h), the doctor's rows (doctor.h) and the topology matrix (topology.h) are pure functions of it.
 * A field that could not be read holds its "unknown" value (below), never a guess: a container hides much,
 * and "unknown" is not a fault.
 *
 * Texts are short and stored in the struct; lists are arrays owned by the description (description_free).
 * Units are in the names.
 *  */
#ifndef MUSTER_RUNTIME_NCCL_DESCRIBE_DESCRIPTION_H
#define MUSTER_RUNTIME_NCCL_DESCRIBE_DESCRIPTION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    DESCRIPTION_NAME = 64,  /* interface, device, GPU, driver names */
    DESCRIPTION_TEXT = 256, /* paths, host names, reasons */
    DESCRIPTION_GPUS_LIMIT = 64,
    DESCRIPTION_XIDS_LIMIT = 64,
    DESCRIPTION_LIST_LIMIT = 1024 /* entries of every list; further entries are counted in `omitted` */
};

enum description_flag { DESCRIPTION_NO, DESCRIPTION_YES, DESCRIPTION_UNKNOWN };

/* An address of an interface. */
struct description_address {
    char text[DESCRIPTION_NAME]; /* numeric */
    int family;                  /* 4 or 6 */
    int prefix;
    enum description_scope { DESCRIPTION_GLOBAL, DESCRIPTION_LINK_LOCAL, DESCRIPTION_LOOPBACK } scope;
};

struct description_interface {
    char name[DESCRIPTION_NAME];
    bool up, running, loopback, virtual_; /* virtual_: no `device` link in /sys (a pod's eth0 is one too) */
    char kind[DESCRIPTION_NAME];   /* rtnetlink's link kind: veth, bridge, tun, wireguard, bond, vlan, ...; ""
                                      for none */
    char vendor[DESCRIPTION_NAME]; /* PCI vendor "0x15b3"; "" for none */
    int64_t speed_mbit;            /* -1 unknown (virtio, veth) */
    int mtu;
    int numa_node; /* -1 unknown */
    char pci[DESCRIPTION_NAME];
    bool default_route; /* a default route uses it */
    bool to_master; /* the kernel's route to the master uses it; on the master itself: it holds the address
                       that other nodes connect to */
    struct description_address *addresses;
    int address_count;
};

struct description_gid {
    int index;
    char text[DESCRIPTION_NAME];
    enum description_gid_type {
        DESCRIPTION_GID_IB,
        DESCRIPTION_GID_ROCE_V1,
        DESCRIPTION_GID_ROCE_V2,
        DESCRIPTION_GID_UNKNOWN
    } type;
    bool ipv4;       /* ::ffff:a.b.c.d */
    bool link_local; /* fe80:: */
    char interface[DESCRIPTION_NAME];
};

/* One port of one RDMA device. */
struct description_rdma {
    char device[DESCRIPTION_NAME]; /* mlx5_0 */
    int port;
    char vendor[DESCRIPTION_NAME];
    char state[DESCRIPTION_NAME];      /* ACTIVE, DOWN, INIT, ARMED; "" unknown */
    char phys_state[DESCRIPTION_NAME]; /* LinkUp, Disabled, Polling, ... */
    bool ethernet;                     /* link layer: RoCE if true, else InfiniBand */
    double rate_gbit;                  /* 0 unknown */
    char interface[DESCRIPTION_NAME];  /* its network device, "" for none */
    int numa_node;
    char pci[DESCRIPTION_NAME];
    bool uverbs;           /* its /dev/infiniband/uverbs<n> can be opened to read and write */
    bool uverbs_refused;   /* it is there, and its mode refuses that to this user */
    int64_t link_downed;   /* counters/link_downed; -1 unknown */
    int64_t symbol_errors; /* -1 unknown */
    struct description_gid *gids;
    int gid_count;
};

/* Distance of two GPUs, or of a GPU and a NIC, on PCI: NCCL's distance words, nearest first. */
enum description_distance {
    DESCRIPTION_SELF,
    DESCRIPTION_NVLINK, /* NV<n>: links is the number */
    DESCRIPTION_PIX,    /* at most one PCIe bridge */
    DESCRIPTION_PXB,    /* several bridges, no host bridge */
    DESCRIPTION_PHB,    /* the same host bridge */
    DESCRIPTION_NODE,   /* the same NUMA node, several host bridges */
    DESCRIPTION_SYS,    /* across sockets */
    DESCRIPTION_DISTANCE_UNKNOWN
};

struct description_gpu {
    int index; /* NVML's, which is PCI order */
    char uuid[DESCRIPTION_NAME], name[DESCRIPTION_NAME], pci[DESCRIPTION_NAME];
    int compute_major, compute_minor;        /* 0.0 unknown */
    int64_t memory_bytes, memory_used_bytes; /* -1 unknown */
    int numa_node;
    char cpus[DESCRIPTION_TEXT]; /* local_cpulist */
    enum description_flag mig;   /* MIG mode is on */
    int mig_devices;
    int nvlinks_up, nvlinks;                /* links that are up; that the GPU has (0: none, -1 unknown) */
    enum description_flag ecc;              /* ECC mode */
    int64_t ecc_uncorrected, ecc_corrected; /* over the GPU's whole life; -1 unknown */
    int64_t ecc_uncorrected_now;            /* since the driver was loaded or the GPU reset; -1 unknown */
    int64_t retired_pages;                  /* -1 unknown */
    enum description_flag remap_pending, remap_failed;
    char recovery_action[DESCRIPTION_NAME]; /* "none", "reset", "reboot", "drain P2P", "drain and reset"; ""
                                               unknown */
    int pcie_generation, pcie_generation_max, pcie_width,
        pcie_width_max;                    /* 0 unknown; an idle GPU drops its generation */
    int temperature_c;                     /* -1 unknown */
    uint64_t throttle_reasons;             /* NVML's bits */
    int processes;                         /* processes that compute on it now; -1 unknown */
    char fabric_state[DESCRIPTION_NAME];   /* NVSwitch: "completed", "not started", "in progress", "failed";
                                              "" none or unknown */
    char fabric_cluster[DESCRIPTION_NAME]; /* cluster of GPUs that share an NVLink fabric across nodes; ""
                                              none */
    int fabric_clique;                     /* -1 unknown */
    bool lost;                             /* NVML: fell off the bus */
    char error[DESCRIPTION_TEXT];          /* NVML's error if the GPU did not respond; "" */
};

/* A pair of GPUs a < b, or GPU a and RDMA port or interface b. */
struct description_link {
    int a, b;
    enum description_distance distance;
    int nvlinks;                               /* between a and b (through a switch: to it) */
    enum description_flag p2p_read, p2p_write; /* GPUs only */
    enum description_flag acs; /* a bridge between a and b redirects their traffic up to the CPU (ACS) */
};

/* A file that NCCL reads, and the variables in it in order. */
struct description_setting {
    char name[DESCRIPTION_NAME];
    char value[1024];
    char source[DESCRIPTION_TEXT]; /* "environment", "/etc/nccl.conf:3", ... */
};

struct description_process {
    int pid, gpu;
    char name[DESCRIPTION_NAME];
    int64_t memory_bytes;
    bool ours; /* a worker of this agent */
};

struct description_xid {
    int xid;
    char pci[DESCRIPTION_NAME], text[DESCRIPTION_TEXT];
    int64_t age_s; /* before the description was made; -1 unknown */
};

struct description {
    int version;                   /* version of this struct's JSON form: 1 */
    char source[DESCRIPTION_TEXT]; /* source: "read on <host> at <time>", or a fixture's document */
    char host[DESCRIPTION_TEXT], kernel[DESCRIPTION_NAME];
    char vendor[DESCRIPTION_NAME], product[DESCRIPTION_NAME]; /* DMI */
    bool wsl, container, kubernetes;
    char node_pool[DESCRIPTION_NAME]; /* as named by the cluster's operator (MUSTER_NODE_POOL); "" for none */
    enum description_flag sys_nice;   /* the capability, without which containers refuse NUMA system calls */
    enum description_flag ipc_lock;   /* the same: with it the limit of locked memory does not count */
    bool sys_mounted;                 /* /sys/class/net can be read */

    /* properties of the job that some decisions depend on */
    char master[DESCRIPTION_TEXT];         /* as given; "" for one node */
    char master_address[DESCRIPTION_NAME]; /* resolved; "" unknown */
    int nnodes, local_workers;             /* 0 unknown */
    int64_t gpus_wanted;                   /* -1: none asked */
    char log_dir[DESCRIPTION_TEXT];        /* "" for none */

    struct description_interface *interfaces;
    int interface_count;
    struct description_rdma *rdma;
    int rdma_count;
    struct description_gpu *gpus;
    int gpu_count;
    struct description_link *gpu_links; /* pairs of GPUs */
    int gpu_link_count;
    struct description_link *nic_links; /* GPU a, RDMA port b (index into rdma) */
    int nic_link_count;
    struct description_link
        *interface_links; /* GPU a, interface b (index into interfaces) that is a PCI card */
    int interface_link_count;
    struct description_process *gpu_processes;
    int gpu_process_count;
    struct description_xid *xids;
    int xid_count;
    bool kernel_log_lost; /* records of it were overwritten while it was read */
    int omitted;          /* entries that did not fit */

    enum description_flag nvml; /* YES: it responded; NO: no library or no driver; UNKNOWN: it was not called
                                   or did not respond in time */
    char nvml_error[DESCRIPTION_TEXT];
    char visible_devices[DESCRIPTION_TEXT]; /* CUDA_VISIBLE_DEVICES; "-" where unset */
    int device_files;                       /* /dev/nvidia<n> */
    int pci_gpus; /* NVIDIA GPUs on the PCI bus, of which a container may see some; -1 unknown */
    char driver[DESCRIPTION_NAME], cuda_driver[DESCRIPTION_NAME]; /* "580.82.07", "13.0"; "" unknown */
    enum description_flag open_kernel_module, peermem, fabric_manager;
    char nccl[DESCRIPTION_NAME];          /* version "2.27.5"; "" unknown */
    char nccl_path[DESCRIPTION_TEXT];     /* the library it was read from */
    char net_plugin[DESCRIPTION_TEXT];    /* libnccl-net*.so found first; "" for none */
    char cloud[DESCRIPTION_NAME];         /* "efa", "tcpx", "tcpxo", "gib", "azure", "oci", "" */
    char topology_file[DESCRIPTION_TEXT]; /* a vendor's topology XMLs that exist, ':' between */

    int64_t shm_bytes, shm_free_bytes;                                        /* /dev/shm; -1: none */
    int64_t memlock_bytes, nofile_soft, nofile_hard, stack_bytes, core_bytes; /* -1 unlimited, -2 unknown */
    int cpus;                                                                 /* affinity mask */
    double cpu_quota;                                                         /* cores; 0 none */
    int numa_nodes;
    int64_t memory_bytes, memory_limit_bytes, memory_used_bytes; /* limit -1: none */
    int64_t disk_free_bytes, disk_free_inodes; /* free space of log_dir, else of TMPDIR; -1 unknown */
    char disk_path[DESCRIPTION_TEXT];
    char disk_error[DESCRIPTION_TEXT]; /* why the directory is not writable; "" for writable or unknown */
    double clock_offset_s; /* offset of this clock, ahead (+) or behind (-), from the time stamp of a file
                              just written to disk_path, which is the file server's clock if the disk is
                              remote; 0 unknown */
    enum description_flag clock_synchronized; /* adjtimex */
    int somaxconn;                            /* -1 unknown */
    int port_first, port_last;                /* ip_local_port_range; 0 unknown */
    bool pid1_is_shell;                       /* PID 1 is a shell and we are below it */
    char pid1[DESCRIPTION_NAME];

    struct description_setting
        *settings; /* NCCL_*, GLOO_*, TP_*, TORCH_NCCL_*, TORCH_FR_*, CUDA_* of environment and files, in
                      order of precedence: the first of a name is in force */
    int setting_count;
};

/* Everything unknown, no lists. */
void description_init(struct description *description);
/* A GPU, a pair, a process with all fields unknown. */
void description_gpu_init(struct description_gpu *gpu);
void description_link_init(struct description_link *link);
void description_process_init(struct description_process *process);
/* Frees the lists and zeroes. */
void description_free(struct description *description);
/* The value in force of a variable and its source; NULL if it is not set. */
const struct description_setting *description_setting_of(const struct description *description,
                                                         const char *name);
/* "PIX", "NV4" (links appended by the caller), "?"... */
const char *description_distance_name(enum description_distance distance);
/* "2.27.5" -> 22705; 0 if it is not a version. */
int description_version(const char *text);

#endif
