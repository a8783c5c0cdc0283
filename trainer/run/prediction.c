/* prediction.c - see prediction.h. */
#include "trainer/run/prediction.h"

#include <string.h>

static void predicted_json(const char *plan, const struct muster_prediction *p, struct buffer *out)
{
    const char *end = strrchr(plan, '}'); /* of the one object */
    (void)buffer_append(out, plan, end ? (size_t)(end - plan) : strlen(plan));
    (void)buffer_printf(out,
                        ",\n \"prediction\": {\"step_s\": %.6f, \"compute_s\": %.6f, \"comm_s\": %.6f, "
                        "\"exposed_s\": %.6f,\n  \"measured_s\": %.3f, \"measured_ranks\": %d, "
                        "\"threads\": %d, \"layer_kinds\": %d}}\n",
                        p->step_s, p->compute_s, p->comm_s, p->exposed_s, p->measured_s, p->ranks, p->threads,
                        p->kinds);
}

static void predicted_text(const char *plan, const struct muster_prediction *p, int world_size,
                           struct buffer *out)
{
    (void)buffer_printf(
        out, "%sa step takes %.1f ms: %.1f ms compute, %.1f ms collectives of which %.1f ms are not hidden\n",
        plan, p->step_s * 1e3, p->compute_s * 1e3, p->comm_s * 1e3, p->exposed_s * 1e3);
    (void)buffer_printf(
        out,
        "predicted from the schedule, and from %.1f s of measuring its parts on this machine, each alone: "
        "%d kinds of layers, optimizer, passes over memory%s; %d rank%s of %d thread%s at once\n",
        p->measured_s, p->kinds, p->ranks > 1 ? ", collectives in shared memory" : "", p->ranks,
        p->ranks > 1 ? "s" : "", p->threads, p->threads > 1 ? "s" : "");
    if (p->ranks < world_size && p->ranks > 1)
        (void)buffer_printf(
            out,
            "this machine has no room for all %d ranks: they are taken to compute as these do and to "
            "exchange as fast as these\n",
            world_size);
    else if (p->ranks < world_size)
        (void)buffer_printf(out, "this machine has room for one of %d ranks: collectives are not in it\n",
                            world_size);
}

int prediction_text(const char *plan, const struct muster_prediction *prediction, int world_size, bool json,
                    struct buffer *out)
{
    if (!prediction)
        (void)buffer_text(out, plan);
    else if (json)
        predicted_json(plan, prediction, out);
    else
        predicted_text(plan, prediction, world_size, out);
    return out->failed ? -1 : 0;
}
