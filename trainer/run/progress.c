/* progress.c - see progress.h. */
#include "trainer/run/progress.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/text.h"

static const double smoothing =
    0.1; /* weight of the newest step: a stable ETA that does not lag by minutes */

void progress_add(struct progress *p, const struct progress_step *step)
{
    p->last[p->done % PROGRESS_LOSSES] = step->loss;
    p->done++;
    double ns = (double)step->step_ns;
    if (p->limit_ns > ns) /* something else ran while it was measured: the best step knows better */
        p->limit_ns = ns;
    if (p->peak_flops > 0 && p->step_flops * 1e9 > p->peak_flops * ns)
        p->peak_flops = p->step_flops * 1e9 / ns;
    ns += (double)step->data_wait_ns;
    p->step_ns = p->step_ns > 0 ? p->step_ns + smoothing * (ns - p->step_ns) : ns;
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
    buffer_printf(out, "step %lld/%lld  loss %.4f  norm %.2f  lr %.2e  %.0f %s/s  ", (long long)p->done,
                  (long long)p->steps, step->loss, step->grad_norm, step->learning_rate, progress_rate(p),
                  p->unit ? p->unit : "tok");
    buffer_printf(out, "%.1f ms  ", (double)step->step_ns / 1e6);
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
    buffer_printf(out, "mem %s planned", text_format_bytes(planned, sizeof planned, p->planned_bytes));
    if (step->resident_bytes > 0)
        buffer_printf(out, ", %s used", text_format_bytes(used, sizeof used, step->resident_bytes));
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
