/* decide_values.c - rules about values that NCCL reads differently from their intended meaning, and about
 * debugging variables.
 *
 * NCCL reads integers with strtoll in base 0, and 0 for anything else; levels are exact upper-case names;
 * a list of algorithms has a stricter grammar since 2.24, where an unknown name is an error. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/nccl/decide/decide_internal.h"

static const char *const integers[] = {
    "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_TC",
    "NCCL_IB_SL",
    "NCCL_IB_TIMEOUT",
    "NCCL_IB_RETRY_CNT",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_ADAPTIVE_ROUTING",
    "NCCL_IB_MERGE_NICS",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_MNNVL_ENABLE",
    "NCCL_CROSS_NIC",
    "NCCL_NET_GDR_READ",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_PXN_DISABLE",
    "NCCL_RAS_ENABLE",
    "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_ROCE_VERSION_NUM",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_NET_GDR_C2C",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SET_STACK_SIZE",
    "NCCL_SOCKET_RETRY_CNT",
};

static bool is_integer(const char *text)
{
    char *end;
    errno = 0;
    (void)strtoll(text, &end, 0);
    return end != text && *end == 0 && errno == 0;
}

static void integers_that_are_none(struct decider *d)
{
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        const char *value = decide_user(d, integers[i]);
        if (value && !is_integer(value))
            decide_warn(d, integers[i], value, "NCCL reads '%.40s' as %lld: write a number", value,
                        strtoll(value, NULL, 0));
    }
}

static void p2p_disable_is_one_or_nothing(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_P2P_DISABLE");
    if (value && is_integer(value) && strtoll(value, NULL, 0) > 1)
        decide_warn(d, "NCCL_P2P_DISABLE", value, "NCCL accepts 1 for yes; '%.20s' has no effect", value);
}

static bool is_level(const char *value)
{
    static const char *const names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(value, names[i]))
            return true;
    return is_integer(value) && *value != '-';
}

static void levels(struct decider *d)
{
    static const char *const variables[] = {"NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = decide_user(d, variables[i]);
        if (value && !is_level(value))
            decide_warn(
                d, variables[i], value,
                "NCCL accepts LOC, NVL, PIX, PXB, PHB and SYS in capitals%s; this value has no effect",
                strcmp(value, "NODE") ? "" : " (NODE is nvidia-smi's name)");
    }
}

static bool is_word_of(const char *word, size_t length, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == length && !strncasecmp(word, *words, length))
            return true;
    return false;
}

/* The first word of a list such as "allreduce:ring,tree;^nvls" that is none of words; NULL if all are. A
 * collective's name before a colon is accepted. */
static const char *unknown_word(const char *value, const char *const *words, size_t *length)
{
    while (*value) {
        value += strspn(value, ",;^");
        *length = strcspn(value, ",;:");
        if (*length > 0 && value[*length] != ':' && !is_word_of(value, *length, words))
            return value;
        value += *length + (value[*length] != 0);
    }
    return NULL;
}

static void algorithms(struct decider *d)
{
    static const char *const algorithm[] = {
        "tree", "ring", "collnet", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat", NULL};
    static const char *const protocol[] = {"ll", "ll128", "simple", NULL};
    static const struct {
        const char *name;
        const char *const *words;
    } lists[] = {{"NCCL_ALGO", algorithm}, {"NCCL_PROTO", protocol}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *value = decide_user(d, lists[i].name);
        size_t length = 0;
        const char *word = value ? unknown_word(value, lists[i].words, &length) : NULL;
        if (word)
            decide_warn(d, lists[i].name, value, "'%.*s' is not a name that NCCL accepts%s",
                        (int)(length < 30 ? length : 30), word,
                        d->version >= 22400 ? ": an error since 2.24" : "");
        else if (value && i == 0 && d->version >= 22400 && !strchr(value, ':') && *value != '^' &&
                 !strcasestr(value, "ring"))
            decide_warn(d, "NCCL_ALGO", value,
                        "since 2.24 no other algorithm is tried: collectives that lack this one fail; write "
                        "allreduce:%.40s",
                        value);
    }
}

static void protocol_ll128(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_PROTO");
    if (value && *value != '^' && strcasestr(value, "LL128"))
        decide_warn(d, "NCCL_PROTO", value,
                    "LL128 forced on hardware without it corrupts data, and NCCL selects it where it is "
                    "safe: unset it");
}

static void socket_threads(struct decider *d)
{
    const char *threads = decide_user(d, "NCCL_SOCKET_NTHREADS"),
               *sockets = decide_user(d, "NCCL_NSOCKS_PERTHREAD");
    long long product = (threads ? strtoll(threads, NULL, 0) : 1) * (sockets ? strtoll(sockets, NULL, 0) : 1);
    if (product > 64)
        decide_warn(d, threads ? "NCCL_SOCKET_NTHREADS" : "NCCL_NSOCKS_PERTHREAD",
                    threads ? threads : sockets, "threads times sockets is %lld; NCCL reduces it to 64",
                    product);
}

/* NVIDIA's debugging variables: left over from an investigation, they cost speed or hang the next version. */
static void debugging(struct decider *d)
{
    static const char *const variables[] = {
        "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_P2P_LEVEL",     "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
        "NCCL_ALGO",     "NCCL_PROTO",    "NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ",  "NCCL_CUMEM_ENABLE"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = decide_user(d, variables[i]);
        if (value && decide_has_gpus(d) &&
            !decide_has_profile(d)) /* a vendor's profile sets some on purpose */
            decide_warn(d, variables[i], value,
                        "NVIDIA lists it as a debugging variable: unset it in production");
    }
}

/* 4.096 us times 2 to the timeout, for each of the retries: 23 and more is minutes. */
static void slow_to_notice(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_IB_TIMEOUT");
    if (value && is_integer(value) && strtoll(value, NULL, 0) > 22 && d->machine->rdma_count > 0)
        decide_warn(d, "NCCL_IB_TIMEOUT", value,
                    "a dead link is detected only after minutes: 22 is enough for an unstable fabric");
}

static void net_by_name(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_NET");
    if (!value || !strcasecmp(value, "Socket"))
        return;
    bool rdma = false;
    for (int i = 0; i < d->machine->rdma_count; i++)
        rdma |= decide_is_usable(&d->machine->rdma[i]);
    if (!strcmp(value, "IB") ? !rdma : !*d->machine->net_plugin)
        decide_warn(d, "NCCL_NET", value,
                    "%s is missing here, so every job fails at once: unset it, or add the device to the pod",
                    !strcmp(value, "IB") ? "an ACTIVE RDMA port" : "its plug-in");
}

const struct decide_rule decide_rules_values[] = {
    {"integer", integers_that_are_none},
    {"p2p-disable", p2p_disable_is_one_or_nothing},
    {"level", levels},
    {"algorithm", algorithms},
    {"ll128", protocol_ll128},
    {"socket-threads", socket_threads},
    {"debugging", debugging},
    {"ib-timeout", slow_to_notice},
    {"net-by-name", net_by_name},
    {0},
};
