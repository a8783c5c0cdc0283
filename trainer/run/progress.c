/* progress.c - see progress.h. */
#include "trainer/run/progress.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/text.h"
#include "runtime/include/muster.h"

static const double smoothing =
    0.1; /* weight of the newest step: a stable ETA that does not lag by minutes */

void progress_add(struct progress *p, const struct progress_step *step)
{
    p->last[p->done % PROGRESS_LOSSES] = step->loss;
    p->done++;
    double ns = (double)step->step_ns;
    if (p->limit_ns > ns) /* something else ran during the measurement */
        p->limit_ns = ns;
    if (p->peak_flops > 0 && p->step_flops * 1e9 > p->peak_flops * ns)
        p->peak_flops = p->step_flops * 1e9 / ns;
    ns += (double)step->data_wait_ns;
    p->step_ns = p->step_ns > 0 ? p->step_ns + smoothing * (ns - p->step_ns) : ns;
}

void progress_go_back(struct progress *p, int64_t done)
{
    p->done = done;
    if (p->begun > done)
        p->begun = done;
}

double progress_rate(const struct progress *p)
{
    return p->step_ns > 0 ? (double)p->tokens_per_step * 1e9 / p->step_ns : 0;
}

double progress_mfu(const struct progress *p, const struct progress_step *step)
{
    return p->peak_flops > 0 && step->step_ns > 0
               ? p->step_flops * 1e9 / (double)step->step_ns / p->peak_flops
               : 0;
}

int64_t progress_losses(const struct progress *p)
{
    int64_t count = p->done - p->begun;
    return count < PROGRESS_LOSSES ? count : PROGRESS_LOSSES;
}

double progress_mean_loss(const struct progress *p)
{
    int64_t count = progress_losses(p);
    double sum = 0;
    for (int64_t i = p->done - count; i < p->done; i++)
        sum += p->last[i % PROGRESS_LOSSES];
    return count ? sum / (double)count : 0;
}

static void duration(struct buffer *out, double seconds)
{
    long long s = (long long)(seconds + 0.5);
    if (s >= 3600)
        buffer_printf(out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        buffer_printf(out, "%lld:%02lld", s / 60, s % 60);
}

static void progress_gpu(const struct progress_step *step, struct buffer *out)
{
    char used[32], total[32];
    if (!step->has_gpu)
        return;
    buffer_text(out, "  gpu ");
    if (step->gpu_busy >= 0)
        buffer_printf(out, "%.0f%%%s", 100 * step->gpu_busy, step->gpu_total ? ", " : "");
    if (step->gpu_total)
        buffer_printf(out, "%s of %s", text_format_bytes(used, sizeof used, step->gpu_used),
                      text_format_bytes(total, sizeof total, step->gpu_total));
}

int progress_line(const struct progress *p, const struct progress_step *step, struct buffer *out)
{
    char planned[32], used[32];
    buffer_printf(out, "step %lld/%lld  loss %.4f  norm %.2f  lr %.2e  %.0f %s/s", (long long)p->done,
                  (long long)p->steps, step->loss, step->grad_norm, step->learning_rate, progress_rate(p),
                  p->unit ? p->unit : "tok");
    if (p->padding > 0)
        buffer_printf(out, " (%.0f%% padding)", 100 * p->padding);
    buffer_printf(out, "  %.1f ms  ", (double)step->step_ns / 1e6);
    if (progress_mfu(p, step) > 0)
        buffer_printf(out, "%.0f%% MFU  ", 100 * progress_mfu(p, step));
    if (p->limit_ns > 0 && step->step_ns > 0)
        buffer_printf(out, "%.0f%% of limit  ", 100 * p->limit_ns / (double)step->step_ns);
    buffer_printf(out, "data %.1f ms  ", (double)step->data_wait_ns / 1e6);
    if (step->comm_ns > 0) {
        double hidden = 100.0 * (1.0 - (double)step->exposed_ns / (double)step->comm_ns);
        buffer_printf(out, "comm %.1f ms, %.1f ms exposed (%.0f%% hidden)  ", (double)step->comm_ns / 1e6,
                      (double)step->exposed_ns / 1e6, hidden > 0 ? hidden : 0);
    } else {
        buffer_text(out, "comm none  ");
    }
    if (p->idle > 0)
        buffer_printf(out, "idle %.1f%%  ", 100 * p->idle);
    if (step->wire_bytes > 0)
        buffer_printf(out, "wire %lld B, error %.3f  ", (long long)step->wire_bytes, step->compression_error);
    buffer_printf(out, "mem %s planned", text_format_bytes(planned, sizeof planned, p->planned_bytes));
    if (step->resident_bytes > 0)
        buffer_printf(out, p->on_device ? ", %s used on the host" : ", %s used",
                      text_format_bytes(used, sizeof used, step->resident_bytes));
    progress_gpu(step, out);
    buffer_text(out, "  eta ");
    duration(out, p->step_ns * 1e-9 * (double)(p->steps - p->done));
    return out->failed ? -1 : 0;
}

int64_t progress_parse_pss(const char *text)
{
    const char *line = strstr(text, "\nPss:");
    return line ? strtoll(line + 5, NULL, 10) * 1024 : 0;
}

/* ---- the prediction of a plan ---- */

static void predicted_json(const char *members, const struct muster_prediction *p, struct buffer *out)
{
    (void)buffer_printf(out,
                        "{%s,\n \"prediction\": {\"step_s\": %.6f, \"compute_s\": %.6f, \"comm_s\": %.6f, "
                        "\"exposed_s\": %.6f,\n  \"measured_s\": %.3f, \"measured_ranks\": %d, "
                        "\"threads\": %d, \"layer_kinds\": %d",
                        members, p->step_s, p->compute_s, p->comm_s, p->exposed_s, p->measured_s, p->ranks,
                        p->threads, p->kinds);
    if (*p->cut) {
        (void)buffer_text(out, ", \"cut\": ");
        (void)buffer_json_string(out, p->cut);
    }
    (void)buffer_text(out, "}}\n");
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
    if (*p->cut)
        (void)buffer_printf(out,
                            "stages are cut by these times; a run without them cuts by products and bytes: "
                            "mesh.cut: [%s] keeps this cut\n",
                            p->cut);
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
