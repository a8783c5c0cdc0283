/* decide_cloud.c - rules about the fast networks of clouds, which need a plug-in and its vendor's settings.
 */
#include <string.h>

#include "runtime/nccl/decide/decide_internal.h"

static void efa(struct decider *d)
{
    const struct description *m = d->machine;
    bool card = false, accelerated = !strncmp(m->product, "p4", 2) || !strncmp(m->product, "p5", 2) ||
                                     !strncmp(m->product, "p6", 2);
    for (int i = 0; i < m->rdma_count; i++)
        card |= !strcmp(m->rdma[i].vendor, "0x1d0f");
    if (!decide_has_gpus(d) || !decide_many_nodes(d))
        return;
    if (card && !*m->net_plugin)
        decide_warn(d, "efa", "",
                    "EFA devices found but no libnccl-net plug-in, so NCCL uses TCP: install aws-ofi-nccl in "
                    "the image");
    else if (!card && accelerated && strstr(m->vendor, "Amazon"))
        decide_warn(d, "efa", "",
                    "%s has EFA, but this container has no EFA device: request vpc.amazonaws.com/efa and "
                    "hugepages-2Mi",
                    m->product);
}

/* Google's plug-ins work only with the settings of their own script, which differ from release to release. */
static void google_profile(struct decider *d)
{
    static const struct {
        const char *cloud, *mark, *source; /* mark: prefix of the profile's variables */
    } profiles[] = {
        {"tcpx", "NCCL_GPUDIRECTTCPX_", "the variables of Google's GPUDirect-TCPX guide"},
        {"tcpxo", "NCCL_FASTRAK_", "/var/lib/tcpxo/lib64/nccl-env-profile.sh"},
        {"gib", "NCCL_NET", "/usr/local/gib/scripts/set_nccl_env.sh"},
    };
    if (!decide_has_gpus(d) || !decide_many_nodes(d))
        return;
    for (size_t i = 0; i < sizeof profiles / sizeof *profiles; i++) {
        bool there = false;
        if (strcmp(d->machine->cloud, profiles[i].cloud))
            continue;
        for (int k = 0; k < d->machine->setting_count; k++)
            there |= !strncmp(d->machine->settings[k].name, profiles[i].mark, strlen(profiles[i].mark));
        if (!there)
            decide_warn(d, "profile", "",
                        "this node has %s but none of its settings, so NCCL uses TCP: apply those of %s "
                        "before muster run",
                        profiles[i].cloud, profiles[i].source);
    }
}

static void plugin_off(struct decider *d)
{
    const char *value = decide_user(d, "NCCL_NET_PLUGIN");
    if (value && !strcmp(value, "none") && decide_has_profile(d) && decide_many_nodes(d))
        decide_warn(d, "NCCL_NET_PLUGIN", value,
                    "the network of this node (%s) is used only through its plug-in", d->machine->cloud);
}

const struct decide_rule decide_rules_cloud[] = {
    {"efa", efa},
    {"google-profile", google_profile},
    {"plugin-off", plugin_off},
    {0},
};
