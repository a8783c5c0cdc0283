/* nccl_random_test.c - properties of decisions over random machines, users and policies.
 *
 * The last machine's seed is printed; MUSTER_SEED=<n> repeats it alone. */
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/golden.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/nccl/decide/decide.h"
#include "runtime/nccl/describe/topology.h"
#include "runtime/nccl/files/policy_read.h"

enum { MACHINES = 20000, KEPT = 1500, LIST = 6 };

static uint64_t state_, last_seed;

static unsigned draw(unsigned below)
{
    state_ = state_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state_ >> 33) % below;
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
}

#define PICK(list)            (list)[draw(sizeof(list) / sizeof *(list))]
#define SET_TEXT(field, text) ((void)snprintf(field, sizeof(field), "%s", text))

/* --- a machine --- */

static const char *const interfaces[] = {"eth0",  "eth1", "eth10", "ib0",        "docker0", "cni0",
                                         "tunl0", "lo",   "eno1",  "tailscale0", "net1",    "e"};
static const char *const values[] = {"NVLSTree,Ring",
                                     "Ring:",
                                     "Ring,,Tree",
                                     "a_word_of_more_than_thirty_letters,Ring",
                                     "^Ring",
                                     "allreduce:Ring;Tree",
                                     "nonet",
                                     "mlx5_1:1,mlx5_2",
                                     "^mlx5_1",
                                     "=",
                                     "^",
                                     "e=",
                                     ",eth0",
                                     "eth0,eth1",
                                     "et",
                                     "LOC",
                                     "2",
                                     "SYS",
                                     "PXB",
                                     "64",
                                     "65",
                                     "8",
                                     "9",
                                     "WARN",
                                     "TRACE",
                                     "0",
                                     "1",
                                     "-1",
                                     "true",
                                     "4M",
                                     "NODE",
                                     "NVL",
                                     "Ring",
                                     "Tree",
                                     "LL128",
                                     "eth0",
                                     "=eth0",
                                     "^lo",
                                     "mlx5",
                                     "=mlx5_0",
                                     "",
                                     "e",
                                     "23",
                                     "none",
                                     "0x10",
                                     "IB",
                                     "^=x,y",
                                     "INFO"};
static const char *const variables[] = {
    "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY",  "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",    "NCCL_P2P_DISABLE",    "NCCL_SHM_DISABLE",   "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",  "NCCL_P2P_LEVEL",      "NCCL_ALGO",          "NCCL_PROTO",
    "NCCL_DEBUG",         "NCCL_DEBUG_FILE",     "NCCL_NET",           "NCCL_NET_PLUGIN",
    "NCCL_TOPO_FILE",     "NCCL_NVLS_ENABLE",    "NCCL_IB_TIMEOUT",    "TORCH_FR_BUFFER_SIZE",
    "NCCL_BUFFSIZE",      "NCCL_SOCKET_NTHREADS"};

static enum description_flag flag(void)
{
    return (enum description_flag)draw(3);
}

static void add_interfaces(struct description *m)
{
    m->interface_count = (int)draw(LIST);
    m->interfaces = mem_calloc(LIST, sizeof *m->interfaces);
    for (int i = 0; i < m->interface_count; i++) {
        struct description_interface *interface = &m->interfaces[i];
        SET_TEXT(interface->name, PICK(interfaces));
        interface->loopback = !strcmp(interface->name, "lo");
        interface->up = chance(80);
        interface->default_route = chance(30);
        interface->to_master = chance(20);
        interface->address_count = (int)draw(3);
        interface->addresses = mem_calloc(2, sizeof *interface->addresses);
        for (int k = 0; k < interface->address_count; k++)
            interface->addresses[k] = (struct description_address){"10.0.0.1", chance(60) ? 4 : 6, 24,
                                                                   (enum description_scope)draw(3)};
    }
}

static void add_ports(struct description *m)
{
    static const char *const states[] = {"ACTIVE", "ACTIVE", "DOWN", "INIT", ""};
    static const double rates[] = {0, 1, 50, 75, 100, 150, 200, 400};
    const bool roce = chance(25); /* ports that all are fit for it */
    m->rdma_count = (int)draw(LIST);
    m->rdma = mem_calloc(LIST, sizeof *m->rdma);
    for (int i = 0; i < m->rdma_count; i++) {
        struct description_rdma *port = &m->rdma[i];
        (void)snprintf(port->device, sizeof port->device, "mlx5_%u", draw(12));
        SET_TEXT(port->vendor, chance(20) ? "0x1d0f" : "0x15b3");
        SET_TEXT(port->state, roce ? "ACTIVE" : PICK(states));
        port->port = 1;
        port->ethernet = roce || chance(40);
        port->rate_gbit = roce ? 400 : PICK(rates);
        port->uverbs = roce || chance(80);
        port->gid_count = (int)draw(4);
        port->gids = mem_calloc(4, sizeof *port->gids);
        for (int k = 0; k < 4; k++) /* text after the last does not count */
            port->gids[k] = (struct description_gid){.index = k,
                                                     .type = roce ? DESCRIPTION_GID_ROCE_V2
                                                                  : (enum description_gid_type)draw(4),
                                                     .ipv4 = chance(50),
                                                     .link_local = chance(40)};
    }
}

static void add_gpus(struct description *m)
{
    static const char *const names[] = {"Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", ""};
    const char *name = PICK(names);
    m->gpu_count = chance(25) ? 0 : (int)draw(LIST);
    m->gpus = mem_calloc(LIST, sizeof *m->gpus);
    for (int i = 0; i < m->gpu_count; i++) {
        description_gpu_init(&m->gpus[i]);
        SET_TEXT(m->gpus[i].name, name);
        m->gpus[i].compute_major = 7 + (int)draw(3);
        m->gpus[i].nvlinks_up = chance(50) ? 15 + (int)draw(4) : (int)draw(2);
        m->gpus[i].mig = flag();
        m->gpus[i].mig_devices = (int)draw(3);
    }
    m->gpu_links = mem_calloc(LIST, sizeof *m->gpu_links);
    m->gpu_link_count = m->gpu_count > 1 ? (int)draw(LIST) : 0;
    for (int i = 0; i < m->gpu_link_count; i++)
        m->gpu_links[i] = (struct description_link){.a = 0,
                                                    .b = 1,
                                                    .distance = (enum description_distance)draw(8),
                                                    .p2p_read = flag(),
                                                    .p2p_write = flag(),
                                                    .acs = flag()};
}

/* From each GPU to the devices that may carry its traffic; some distances are not known. */
static struct description_link *links_to(const struct description *m, int count, int *links)
{
    struct description_link *list = mem_calloc((size_t)LIST * LIST, sizeof *list);
    *links = 0;
    for (int gpu = 0; gpu < m->gpu_count; gpu++)
        for (int i = 0; i < count; i++)
            if (chance(80))
                list[(*links)++] =
                    (struct description_link){.a = gpu,
                                              .b = i,
                                              .distance = (enum description_distance)(2 + draw(6)),
                                              .nvlinks = (int)draw(9)};
    return list;
}

static void add_topology(struct description *m)
{
    for (int i = 0; i < m->interface_count; i++) {
        struct description_interface *interface = &m->interfaces[i];
        SET_TEXT(interface->pci, chance(60) ? "0000:05:00.0" : "");
        interface->speed_mbit = (int)draw(4) * 25000 + (int)draw(2);
        interface->numa_node = (int)draw(3) - 1;
    }
    for (int i = 0; i < m->rdma_count; i++) {
        SET_TEXT(m->rdma[i].interface, chance(40) ? PICK(interfaces) : "");
        m->rdma[i].numa_node = (int)draw(3) - 1;
    }
    for (int i = 0; i < m->gpu_count; i++) {
        m->gpus[i].numa_node = (int)draw(3) - 1;
        SET_TEXT(m->gpus[i].cpus, chance(60) ? "0-31" : "");
    }
    mem_free(m->gpu_links);
    m->gpu_links = links_to(m, m->gpu_count, &m->gpu_link_count);
    m->nic_links = links_to(m, m->rdma_count, &m->nic_link_count);
    m->interface_links = links_to(m, m->interface_count, &m->interface_link_count);
}

static void add_setting(struct description *m, const char *name, const char *value)
{
    struct description_setting *more = mem_realloc(m->settings, (size_t)m->setting_count + 1, sizeof *more);
    assert_non_null(more);
    m->settings = more;
    struct description_setting *setting = &more[m->setting_count++];
    memset(setting, 0, sizeof *setting);
    SET_TEXT(setting->name, name);
    SET_TEXT(setting->value, value);
    SET_TEXT(setting->source, chance(50) ? "environment" : "/etc/nccl.conf:1");
}

static void make_machine(struct description *m)
{
    static const char *const versions[] = {"",       "2.18.3", "2.20.5", "2.21.0", "2.21.5", "2.23.4",
                                           "2.24.0", "2.24.1", "2.25.1", "2.26.5", "2.26.6", "2.27.5",
                                           "2.27.9", "2.28.0", "2.28.1", "2.30.7"};
    static const char *const clouds[] = {"", "", "", "efa", "tcpx", "tcpxo", "gib", "azure"};
    description_init(m);
    SET_TEXT(m->nccl, PICK(versions));
    SET_TEXT(m->cloud, PICK(clouds));
    SET_TEXT(m->vendor, chance(20) ? "Amazon EC2" : "");
    SET_TEXT(m->product, chance(20) ? "p5.48xlarge" : chance(20) ? "p6-b200.48xlarge" : "");
    SET_TEXT(m->node_pool, chance(50) ? "a3-mega" : "");
    SET_TEXT(m->master_address, chance(30) ? "" : chance(70) ? "10.0.0.1" : "fd00::1");
    SET_TEXT(m->log_dir, chance(50) ? "/logs/run" : "");
    SET_TEXT(m->topology_file, chance(30) ? "/opt/ndv5-topo.xml:/opt/ndv4-topo.xml" : "");
    SET_TEXT(m->nvml_error, chance(20) ? "NVML did not answer in 5 s" : "");
    m->nvml = flag();
    m->peermem = flag();
    m->open_kernel_module = flag();
    m->sys_nice = flag();
    m->container = chance(50);
    m->sys_mounted = chance(90);
    m->nnodes = (int)draw(4);
    m->local_workers = (int)draw(9);
    m->gpus_wanted = (int64_t)draw(9) - 1;
    m->device_files = (int)draw(3);
    static const int64_t sizes[] = {-1, 0, 1, 65536, (1 << 30) - 1, 1 << 30, (1 << 30) + 1, INT64_C(1) << 31};
    m->shm_bytes = chance(20) ? PICK(sizes) : (int64_t)draw(34) * 64 << 20;
    m->memlock_bytes = chance(50) ? -1 : PICK(sizes);
    m->stack_bytes = chance(50) ? -1 : 8 << 20;
    add_interfaces(m);
    add_ports(m);
    add_gpus(m);
    for (unsigned n = draw(8); n > 0; n--) {
        const char *value = PICK(values); /* arguments have no order */
        add_setting(m, PICK(variables), value);
    }
}

/* --- properties --- */

static const struct decision *find(const struct decision_list *list, const char *name,
                                   enum decision_kind kind)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == kind && !strcmp(list->items[i].name, name))
            return &list->items[i];
    return NULL;
}

static bool same(const struct decision *a, const struct decision *b)
{
    return a->kind == b->kind && !strcmp(a->name, b->name) && !strcmp(a->value, b->value) &&
           !strcmp(a->reason, b->reason) && !strcmp(a->rule, b->rule);
}

static void check_entries(const struct decision_list *list)
{
    for (int i = 0; i < list->count; i++) {
        const struct decision *decision = &list->items[i];
        assert_true(*decision->name && *decision->rule && strlen(decision->reason) > 8);
        assert_null(strchr(decision->reason, '\n'));
        if (i > 0) {
            int order = strcmp(list->items[i - 1].name, decision->name);
            assert_true(order < 0 || (order == 0 && list->items[i - 1].kind <= decision->kind));
            if (order == 0 && list->items[i - 1].kind == decision->kind)
                order = strcmp(list->items[i - 1].rule, decision->rule);
            assert_true(order < 0 || list->items[i - 1].kind < decision->kind ||
                        strcmp(list->items[i - 1].reason, decision->reason) <= 0);
            assert_false(same(&list->items[i - 1], decision)); /* nothing is listed twice */
        }
        if (decision->kind == DECISION_SET && i > 0)
            assert_false(list->items[i - 1].kind == DECISION_SET &&
                         !strcmp(list->items[i - 1].name, decision->name));
    }
}

/* Debugging variables of NVIDIA's manual, and variables whose wrong value corrupts or hangs. */
static void check_never_set(const struct decision_list *list)
{
    static const char *const never[] = {
        "NCCL_NTHREADS",      "NCCL_BUFFSIZE",   "NCCL_P2P_DISABLE",   "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE",   "NCCL_IB_DISABLE", "NCCL_ALGO",          "NCCL_PROTO",
        "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS",   "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS",
        "NCCL_NET_GDR_LEVEL", "NCCL_NET",        "NCCL_NVLS_ENABLE",   "NCCL_CUMEM_ENABLE",
        "NCCL_IB_TIMEOUT",    "NCCL_IB_TC",      "NCCL_IB_SL",         "CUDA_DEVICE_MAX_CONNECTIONS",
        "NCCL_NET_PLUGIN",    "NCCL_CROSS_NIC",  "NCCL_NET_GDR_READ",  "TORCH_NCCL_BLOCKING_WAIT"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_null(find(list, never[i], DECISION_SET));
}

static void check_user(const struct description *m, const struct decision_list *list)
{
    for (int i = 0; i < list->count; i++) {
        const struct description_setting *user = description_setting_of(m, list->items[i].name);
        if (list->items[i].kind == DECISION_SET)
            assert_null(user);
        if (list->items[i].kind == DECISION_KEPT)
            assert_true(user && !strcmp(user->value, list->items[i].value));
        assert_int_not_equal(list->items[i].kind, DECISION_FORBIDDEN); /* no policy */
    }
}

static void check_repeats(const struct description *m, const struct decision_list *list)
{
    struct decision_list again = {0};
    assert_int_equal(decide(m, NULL, &again, NULL), 0);
    assert_int_equal(again.count, list->count);
    for (int i = 0; i < list->count; i++)
        assert_true(same(&list->items[i], &again.items[i]));
    decision_list_free(&again);
}

/* Where the user sets what muster would, nothing is left to set and nothing of it is complained of. */
static void check_own_advice(struct description *m, const struct decision_list *list)
{
    struct decision_list after = {0};
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == DECISION_SET)
            add_setting(m, list->items[i].name, list->items[i].value);
    assert_int_equal(decide(m, NULL, &after, NULL), 0);
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == DECISION_SET) {
            assert_null(find(&after, list->items[i].name, DECISION_SET));
            const struct decision *warning = find(&after, list->items[i].name, DECISION_WARNED);
            if (warning)
                fail_msg("muster sets %s=%s and warns of it: %s", warning->name, warning->value,
                         warning->reason);
        }
    decision_list_free(&after);
}

/* --- with a policy --- */

static void make_policy(struct policy *policy)
{
    scope_buffer text = {0};
    struct muster_error err = {0};
    buffer_text(&text, "version: 1\nrules:\n");
    for (unsigned n = 1 + draw(4); n > 0; n--) {
        static const char *const kinds[] = {"add", "pin", "forbid"};
        const char *kind = PICK(kinds);
        if (!strcmp(kind, "forbid")) {
            buffer_printf(&text, "  - forbid: [%s]\n", PICK(variables));
        } else {
            const unsigned value = draw(9);
            buffer_printf(&text, "  - %s: {%s: \"%u\"}\n", kind, PICK(variables), value);
        }
        if (chance(30)) {
            const unsigned nodes = 1 + draw(3);
            buffer_printf(&text, "    when: {pool: \"%s\", nodes: \">=%u\"}\n", chance(50) ? "a3-*" : "b",
                          nodes);
        }
    }
    if (policy_parse("policy.yaml", text.data, text.length, policy, &err) < 0)
        fail_msg("%s", err.text);
}

static void check_policy(const struct description *m)
{
    struct policy policy;
    struct decision_list list = {0};
    make_policy(&policy);
    assert_int_equal(decide(m, &policy, &list, NULL), 0);
    check_entries(&list);
    for (int i = 0; i < list.count; i++) {
        const struct decision *decision = &list.items[i];
        const struct description_setting *user = description_setting_of(m, decision->name);
        const struct policy_entry *pin = policy_find(&policy, decision->name, POLICY_PIN, m),
                                  *forbid = policy_find(&policy, decision->name, POLICY_FORBID, m);
        if (decision->kind == DECISION_SET && user)
            assert_true(pin && !strcmp(decision->value, pin->value));
        if (decision->kind == DECISION_SET)
            assert_null(forbid);
        if (decision->kind == DECISION_FORBIDDEN)
            assert_true(user && forbid && strstr(decision->reason, "policy.yaml:"));
    }
    for (int i = 0; i < m->setting_count; i++)
        if (policy_find(&policy, m->settings[i].name, POLICY_FORBID, m))
            assert_non_null(find(&list, m->settings[i].name, DECISION_FORBIDDEN));
    for (int i = 0; i < policy.count; i++)
        if (policy.entries[i].kind == POLICY_PIN && policy_applies(&policy.entries[i], m) &&
            !policy_find(&policy, policy.entries[i].name, POLICY_FORBID, m))
            assert_non_null(find(&list, policy.entries[i].name, DECISION_SET));
    decision_list_free(&list);
    policy_free(&policy);
}

/* As muster doctor, muster env and the launcher's log show them. */
static void say(const struct decision_list *list, struct buffer *out)
{
    static const int columns[] = {20, 80, 100, 101, 102, 140, 200};
    assert_int_equal(decision_print(list, PICK(columns), out), 0);
    assert_int_equal(decision_json(list, out), 0);
    assert_int_equal(decision_summary(list, out), 0);
    struct buffer full = {.limit = 1};
    if (list->count) {
        assert_int_equal(decision_print(list, 80, &full), -1);
        assert_int_equal(decision_json(list, &full), -1);
        assert_int_equal(decision_summary(list, &full), -1);
    }
    buffer_free(&full);
    for (int kind = 0; kind <= DECISION_FORBIDDEN; kind++) {
        const struct decision *first = decision_first(list, (enum decision_kind)kind);
        buffer_printf(out, "\n%s", first ? first->name : "none");
    }
}

/* Some text, now and then longer than a line. */
static void text_of(char *out, size_t most)
{
    size_t length = draw((unsigned)most);
    for (size_t i = 0; i < length; i++)
        out[i] = chance(12) && length > 60 * draw(4) ? ' ' : (char)('a' + draw(26));
    out[length] = '\0';
}

/* Lists of any widths: where lines break, and where a setting has a line of its own. */
static void lists_are_shown_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= KEPT; seed++) {
        static struct decision items[LIST];
        struct decision_list list = {items, (int)(seed % (LIST + 1))};
        scope_buffer printed = {0};
        state_ = seed * UINT64_C(0x9e3779b97f4a7c15);
        for (int i = 0; i < list.count; i++) {
            items[i].kind = (enum decision_kind)draw(DECISION_FORBIDDEN + 1);
            if (i == 0 || chance(70))
                text_of(items[i].name, chance(70) ? 12 : sizeof items[i].name - 1);
            text_of(items[i].value, chance(30) ? 1 : 16 + draw(40));
            text_of(items[i].reason, sizeof items[i].reason - 1);
            text_of(items[i].rule, 12);
            if (chance(10))
                SET_TEXT(items[i].name, "TORCH_FR_DUMP");
        }
        say(&list, &printed);
        buffer_printf(&text, "%" PRIu64 ": %016" PRIx64 "\n", seed,
                      text_hash(TEXT_HASH_START, printed.data, printed.length));
    }
    golden_check("tests/unit/nccl/golden/random_lists.txt", &text);
}

/* The output of muster doctor for any machine: the matrix, the names, the distant devices. */
static void topologies_are_shown_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= KEPT; seed++) {
        struct description machine;
        scope_buffer printed = {0};
        state_ = seed * UINT64_C(0x9e3779b97f4a7c15);
        make_machine(&machine);
        add_topology(&machine);
        assert_int_equal(topology_print(&machine, &printed), 0);
        printed.limit = printed.length; /* there is no room for another one, and that is an error */
        assert_int_equal(topology_print(&machine, &printed), -1);
        buffer_printf(&text, "%" PRIu64 ": %016" PRIx64 "\n", seed,
                      text_hash(TEXT_HASH_START, printed.data, printed.length));
        description_free(&machine);
    }
    golden_check("tests/unit/nccl/golden/random_topologies.txt", &text);
}

static int decide_again(void *machine)
{
    struct decision_list list = {0};
    struct muster_error err = {0};
    int result = decide(machine, NULL, &list, &err);
    assert_true(result == 0 || err.code == MUSTER_E_NOMEM);
    decision_list_free(&list);
    return result;
}

/* Without memory there is no list that is not whole. */
static void no_memory_is_an_error(void **state)
{
    (void)state;
    int decided = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct description machine;
        struct decision_list list = {0};
        state_ = seed * UINT64_C(0x9e3779b97f4a7c15);
        make_machine(&machine);
        assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
        const int count = list.count;
        decided += count;
        decision_list_free(&list);
        faults_sweep(decide_again, &machine);
        faults_begin(); /* and none of it is kept */
        faults_fail_after(0);
        assert_int_equal(decide_again(&machine), count ? -1 : 0);
        assert_int_equal(faults_end(), 0);
        description_free(&machine);
    }
    assert_true(decided > 0);
}

/* One line a machine: how many decisions, and all of them in one number. */
static void decisions_are_what_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t seed = 1; seed <= KEPT; seed++) {
        struct description machine;
        struct policy policy;
        struct decision_list list = {0}, ruled = {0};
        scope_buffer printed = {0};
        state_ = seed * UINT64_C(0x9e3779b97f4a7c15);
        make_machine(&machine);
        make_policy(&policy);
        assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
        assert_int_equal(decide(&machine, &policy, &ruled, NULL), 0);
        say(&list, &printed);
        say(&ruled, &printed);
        buffer_printf(&text, "%" PRIu64 ": %d, with a policy %d, %016" PRIx64 "\n", seed, list.count,
                      ruled.count, text_hash(TEXT_HASH_START, printed.data, printed.length));
        decision_list_free(&ruled);
        decision_list_free(&list);
        policy_free(&policy);
        description_free(&machine);
    }
    golden_check("tests/unit/nccl/golden/random_decisions.txt", &text);
}

static void any_machine(void **state)
{
    const char *asked = getenv("MUSTER_SEED");
    uint64_t first = asked ? strtoull(asked, NULL, 10) : 1, count = asked ? 1 : MACHINES;
    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct description machine;
        struct decision_list list = {0};
        last_seed = seed;
        state_ = seed * UINT64_C(0x9e3779b97f4a7c15);
        make_machine(&machine);
        assert_int_equal(decide(&machine, NULL, &list, NULL), 0);
        check_entries(&list);
        check_never_set(&list);
        check_user(&machine, &list);
        check_repeats(&machine, &list);
        check_policy(&machine);
        check_own_advice(&machine, &list);
        decision_list_free(&list);
        description_free(&machine);
    }
}

static int say_seed(void **state)
{
    (void)state;
    print_message("[ SEED     ] %" PRIu64 "\n", last_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decisions_are_what_they_were), cmocka_unit_test(lists_are_shown_as_they_were),
        cmocka_unit_test(topologies_are_shown_as_they_were), cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test_teardown(any_machine, say_seed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
