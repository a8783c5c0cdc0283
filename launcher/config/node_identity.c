/* node_identity.c - see node_identity.h. */
#include "launcher/config/node_identity.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "proto/slurm.h"

enum { OPERATOR_PORT = 23456, NODES_LIMIT = 1000000, SLURM_PORTS_FROM = 20000, SLURM_PORTS = 10000 };

static const char *get(const struct node_identity_known *known, const char *name)
{
    const char *text = known->get(known->context, name);
    return text && *text ? text : NULL;
}

static bool get_number(const struct node_identity_known *known, const char *name, int64_t least, int64_t most,
                       int64_t *out)
{
    const char *text = get(known, name);
    return text && text_int64(text, out) && *out >= least && *out <= most;
}

static bool copy(char *out, size_t size, const char *text, size_t length)
{
    if (length >= size)
        return false;
    memcpy(out, text, length);
    out[length] = 0;
    return true;
}

/* --- names --- */

/* "j-worker-2.domain": job "j", role "worker", index 2, domain ".domain". */
struct replica {
    const char *name; /* the whole */
    int job_length;
    bool master;
    int64_t index;
    const char *domain; /* the rest after the index: "" or from a dot on */
};

/* The number after the last dash of the first label bytes, and the position of that dash. */
static bool read_index(const char *name, size_t label, int64_t *index, size_t *dash)
{
    char digits[16];
    for (*dash = label; *dash && name[*dash] != '-'; (*dash)--)
        ;
    size_t length = label - *dash - 1;
    return *dash && length && strspn(name + *dash + 1, "0123456789") == length &&
           copy(digits, sizeof digits, name + *dash + 1, length) && text_int64(digits, index);
}

/* A job's name may have dots, and the host name a domain: the whole is tried first. */
static bool read_replica(const char *name, struct replica *replica)
{
    static const char master[] = "-master", worker[] = "-worker";
    enum { ROLE_LENGTH = sizeof master - 1 };
    const size_t ends[] = {strlen(name), strcspn(name, ".")};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t dash;
        if (!read_index(name, ends[i], &replica->index, &dash) || dash <= ROLE_LENGTH)
            continue;
        const char *role = name + dash - ROLE_LENGTH;
        replica->master = !strncmp(role, master, ROLE_LENGTH);
        if (!replica->master && strncmp(role, worker, ROLE_LENGTH))
            continue;
        replica->name = name;
        replica->job_length = (int)(role - name);
        replica->domain = name + ends[i];
        return true;
    }
    return false;
}

/* Whether host is the job's replica 0 of this role, with a domain or without. */
static bool names_first(const struct replica *replica, const char *host, const char *role)
{
    char expected[NODE_IDENTITY_HOST_SIZE];
    (void)snprintf(expected, sizeof expected, "%.*s-%s-0", replica->job_length, replica->name, role);
    size_t length = strlen(expected);
    return !strncmp(host, expected, length) && (!host[length] || host[length] == '.');
}

static bool is_loopback_name(const char *host)
{
    return !strcmp(host, "localhost") || address_is_loopback(host);
}

/* --- the rules: 1 matched, 0 not, -1 it matches but cannot be followed --- */

/* MASTER_ADDR and MASTER_PORT, as manifests of plain Jobs set them. Not where we are a worker of another
 * launcher: they are its own then. */
static bool address_of_variables(const struct node_identity_known *known, struct node_identity_found *found)
{
    int64_t port;
    const char *address = get(known, ENV_MASTER_ADDR);
    if (!address || is_loopback_name(address) || get(known, ENV_RUN_ID) ||
        !copy(found->master_addr, sizeof found->master_addr, address, strlen(address)))
        return false;
    if (known->master_port < 0 && get_number(known, ENV_MASTER_PORT, 1, 65535, &port))
        found->master_port = (int)port;
    (void)snprintf(found->source, sizeof found->source, "JOB_COMPLETION_INDEX and MASTER_ADDR");
    return true;
}

/* A batch Job with completionMode Indexed: the number of nodes must be given, node 0 is the host of index
 * 0, in the pods' service, or what MASTER_ADDR names where they have none. */
static int indexed_job(const struct node_identity_known *known, struct node_identity_found *found,
                       struct muster_error *err)
{
    int64_t index, in_name;
    size_t dash;
    if (known->nodes < 2 || !get_number(known, "JOB_COMPLETION_INDEX", 0, NODES_LIMIT, &index))
        return 0;
    (void)snprintf(found->source, sizeof found->source, "JOB_COMPLETION_INDEX");
    found->node_rank = (int)index;
    if (known->master_addr)
        return 1;
    const char *name = *known->full_name ? known->full_name : known->host_name;
    if (!strchr(name, '.') || !read_index(name, strcspn(name, "."), &in_name, &dash) || in_name != index) {
        if (address_of_variables(known, found))
            return 1;
        return error_set(err, MUSTER_E_INVALID,
                         "JOB_COMPLETION_INDEX=%lld is this node's rank, but the address of node 0 is "
                         "unknown: '%.100s' is not <job>-%lld.<service>; set the pod template's subdomain to "
                         "a headless Service, or give --master-addr",
                         (long long)index, name, (long long)index);
    }
    if ((size_t)snprintf(found->master_addr, sizeof found->master_addr, "%.*s-0%s", (int)dash, name,
                         name + strcspn(name, ".")) >= sizeof found->master_addr)
        return error_set(err, MUSTER_E_LIMIT, "the host name '%.100s...' is too long", name);
    return 1;
}

/* A pod of a PyTorchJob by its host name: operators since 1.8 leave a job of workers only without rank and
 * address. If a Master is named, it is node 0 and worker i is node i + 1. */
static int pod_name(const struct node_identity_known *known, struct node_identity_found *found,
                    struct muster_error *err)
{
    struct replica replica;
    int64_t port;
    (void)err;
    if (known->nodes < 2 || !read_replica(known->host_name, &replica) || replica.index >= NODES_LIMIT)
        return 0;
    const char *given = known->master_addr ? known->master_addr : get(known, ENV_MASTER_ADDR);
    bool has_master = given && names_first(&replica, given, "master");
    if (given && !has_master && !replica.master && !names_first(&replica, given, "worker"))
        return 0; /* node 0 cannot be derived from the names */
    (void)snprintf(found->source, sizeof found->source, "the host name %s", known->host_name);
    found->node_rank = (int)replica.index + (has_master && !replica.master);
    if (!known->master_addr) {
        if (given && !is_loopback_name(given))
            (void)copy(found->master_addr, sizeof found->master_addr, given, strlen(given));
        else if (replica.master)
            (void)copy(found->master_addr, sizeof found->master_addr, known->host_name,
                       strlen(known->host_name));
        else
            (void)snprintf(found->master_addr, sizeof found->master_addr, "%.*s-worker-0%s",
                           replica.job_length, replica.name, replica.domain);
    }
    if (known->master_port < 0)
        found->master_port =
            !known->master_addr && given && get_number(known, ENV_MASTER_PORT, 1, 65535, &port)
                ? (int)port
                : OPERATOR_PORT;
    return 1;
}

/* Operators before 1.7, and Volcano's plug-in, give RANK and WORLD_SIZE in pods and no PET_ variable.
 * torchrun does not read them, and a nested run inherits them from its workers' environment, hence the
 * conditions. */
static int older_operator(const struct node_identity_known *known, struct node_identity_found *found,
                          struct muster_error *err)
{
    struct replica replica;
    int64_t port, rank, nodes;
    const char *address = get(known, ENV_MASTER_ADDR);
    (void)err;
    if (known->nodes || known->master_addr || known->master_port >= 0 || get(known, ENV_RUN_ID) || !address ||
        !get_number(known, ENV_MASTER_PORT, 1, 65535, &port) ||
        !get_number(known, ENV_WORLD_SIZE, 1, NODES_LIMIT, &nodes) ||
        !get_number(known, ENV_RANK, 0, nodes - 1, &rank) || !read_replica(known->host_name, &replica) ||
        rank != replica.index + !replica.master)
        return 0;
    /* the oldest ones give the master localhost, which no other node can reach */
    const char *master = rank == 0 && is_loopback_name(address) ? known->host_name : address;
    if (!copy(found->master_addr, sizeof found->master_addr, master, strlen(master)))
        return 0;
    (void)snprintf(found->source, sizeof found->source, "RANK and WORLD_SIZE, pods by the host name %s",
                   known->host_name);
    found->nodes = (int)nodes;
    found->node_rank = (int)rank;
    found->master_port = (int)port;
    return 1;
}

/* NODE_RANK with MASTER_ADDR, as Lightning reads them and as manifests of plain Jobs set them (from the
 * annotation batch.kubernetes.io/job-completion-index). torchrun reads neither, so the number of nodes must
 * be given. */
static int bare_node_rank(const struct node_identity_known *known, struct node_identity_found *found,
                          struct muster_error *err)
{
    int64_t rank, port;
    const char *address = known->master_addr ? known->master_addr : get(known, ENV_MASTER_ADDR);
    (void)err;
    if (known->nodes < 2 || get(known, ENV_RUN_ID) || !address || is_loopback_name(address) ||
        !get_number(known, "NODE_RANK", 0, known->nodes - 1, &rank))
        return 0;
    if (!known->master_addr && !copy(found->master_addr, sizeof found->master_addr, address, strlen(address)))
        return 0;
    (void)snprintf(found->source, sizeof found->source, "NODE_RANK");
    found->node_rank = (int)rank;
    if (known->master_port < 0 && get_number(known, ENV_MASTER_PORT, 1, 65535, &port))
        found->master_port = (int)port;
    return 1;
}

/* The short names of both are equal, or one is not known. */
static bool same_host(const char *a, const char *b)
{
    size_t length = strcspn(a, ".");
    return !b || (strcspn(b, ".") == length && !strncmp(a, b, length));
}

/* srun with one task per node. A batch script itself has a node id too, but no step. */
static int slurm_step(const struct node_identity_known *known, struct node_identity_found *found,
                      struct muster_error *err)
{
    int64_t rank, nodes, tasks, job, step;
    char own[NODE_IDENTITY_HOST_SIZE];
    if (known->nodes == 1 || get(known, ENV_RUN_ID) ||
        !get_number(known, "SLURM_STEP_NUM_NODES", 2, NODES_LIMIT, &nodes) ||
        !get_number(known, "SLURM_STEP_NUM_TASKS", 1, NODES_LIMIT, &tasks) || tasks != nodes ||
        !get_number(known, "SLURM_NODEID", 0, nodes - 1, &rank) || (known->nodes && known->nodes != nodes))
        return 0;
    const char *list = get(known, "SLURM_STEP_NODELIST");
    if (!list)
        list = get(known, "SLURM_JOB_NODELIST");
    if (!list || slurm_host_count(list, err) != nodes)
        return 0;
    if (slurm_host_at(list, rank, own, sizeof own, err) < 0 || !same_host(own, get(known, "SLURMD_NODENAME")))
        return 0;
    (void)snprintf(found->source, sizeof found->source, "Slurm");
    found->nodes = known->nodes ? 0 : (int)nodes;
    found->node_rank = (int)rank;
    if (!known->master_addr && slurm_host_at(list, 0, found->master_addr, sizeof found->master_addr, err) < 0)
        return -1;
    if (!get_number(known, "SLURM_JOB_ID", 0, INT64_MAX, &job))
        return 1;
    if (known->master_port < 0) /* jobs that share a node need different ports; two each */
        found->master_port = SLURM_PORTS_FROM + 2 * (int)(job % (SLURM_PORTS / 2));
    if (!get_number(known, "SLURM_STEP_ID", 0, INT64_MAX, &step))
        step = 0;
    (void)snprintf(found->job_id, sizeof found->job_id, "slurm-%lld.%lld", (long long)job, (long long)step);
    return 1;
}

int node_identity_find(const struct node_identity_known *known, struct node_identity_found *found,
                       struct muster_error *err)
{
    static int (*const rules[])(const struct node_identity_known *, struct node_identity_found *,
                                struct muster_error *) = {indexed_job, pod_name, older_operator, slurm_step,
                                                          bare_node_rank};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        *found = (struct node_identity_found){0};
        int matched = rules[i](known, found, err);
        if (matched)
            return matched < 0 ? -1 : 0;
    }
    *found = (struct node_identity_found){0};
    error_clear(err); /* a rule that does not match may have left its reason */
    return 0;
}

/* --- siblings --- */

struct sibling_form {
    const char *stem; /* up to the last dash, with it */
    int stem_length;
    bool worker;        /* after the stem comes "worker-" */
    const char *domain; /* "" or from a dot on */
    int64_t first;      /* index of node 0 among the names; -1: none of them is node 0 */
    int64_t own;        /* index of this pod; -1: none */
};

static bool replica_form(const char *master, const char *host_name, struct sibling_form *form)
{
    struct replica node0, self;
    if (!read_replica(master, &node0) || !read_replica(host_name, &self) ||
        node0.job_length != self.job_length || strncmp(master, host_name, (size_t)self.job_length) != 0)
        return false;
    *form = (struct sibling_form){.stem = master,
                                  .stem_length = node0.job_length + 1,
                                  .worker = true,
                                  .domain = node0.domain,
                                  .first = node0.master ? -1 : node0.index,
                                  .own = self.master ? -1 : self.index};
    return true;
}

/* Only in a service, and from 0 on: hosts are numbered, too, and those may be another job's. */
static bool numbered_form(const char *master, const char *host_name, struct sibling_form *form)
{
    int64_t first, own;
    size_t dash, own_dash;
    const size_t label = strcspn(master, "."), own_label = strcspn(host_name, ".");
    if (!master[label] || !read_index(master, label, &first, &dash) ||
        !read_index(host_name, own_label, &own, &own_dash) || first != 0 || dash != own_dash ||
        strncmp(master, host_name, dash + 1) != 0)
        return false;
    *form = (struct sibling_form){
        .stem = master, .stem_length = (int)dash + 1, .domain = master + label, .first = 0, .own = own};
    return true;
}

int node_identity_siblings(const char *master, const char *host_name, int nodes,
                           char (*names)[NODE_IDENTITY_HOST_SIZE], int limit, int *own)
{
    struct sibling_form form;
    int count = 0;
    *own = -1;
    if (address_is_numeric(master) ||
        (!replica_form(master, host_name, &form) && !numbered_form(master, host_name, &form)))
        return 0;
    const int end = form.first < 0 ? nodes - 1 : nodes; /* next to a Master there is one worker fewer */
    for (int i = 0; i < end && count < limit; i++) {
        if (i == form.first)
            continue;
        if (i == form.own)
            *own = count;
        const int length = snprintf(names[count++], NODE_IDENTITY_HOST_SIZE, "%.*s%s%d%s", form.stem_length,
                                    form.stem, form.worker ? "worker-" : "", i, form.domain);
        if (length >= NODE_IDENTITY_HOST_SIZE)
            return 0;
    }
    return count;
}
