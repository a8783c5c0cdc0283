/* figures.h - pure: figures of a worker's training, a line in the pipe of its heartbeats (heartbeat.md). */
#ifndef MUSTER_LAUNCHER_POLICY_FIGURES_H
#define MUSTER_LAUNCHER_POLICY_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

/* symbol, name in the line, metric, factor of the metric's unit, meaning. Names are a stable interface. */
#define FIGURES(X)                                                                                           \
    X(FIGURE_LOSS, "loss", "muster_train_loss", 1, "Loss of the last step.")                                 \
    X(FIGURE_GRAD_NORM, "grad_norm", "muster_train_grad_norm", 1, "Norm of the gradient before clipping.")   \
    X(FIGURE_LEARNING_RATE, "learning_rate", "muster_train_learning_rate", 1,                                \
      "Learning rate of the last step.")                                                                     \
    X(FIGURE_TOKENS_PER_S, "tokens_per_s", "muster_train_tokens_per_second", 1,                              \
      "Tokens of all ranks in a second.")                                                                    \
    X(FIGURE_MFU, "mfu", "muster_train_mfu_ratio", 1, "Model FLOPs utilization, 0 to 1.")                    \
    X(FIGURE_STEP_MS, "step_ms", "muster_train_step_seconds", 1e-3, "Time of the last step.")                \
    X(FIGURE_COMM_MS, "comm_ms", "muster_train_comm_seconds", 1e-3, "Collectives of the last step.")         \
    X(FIGURE_EXPOSED_MS, "exposed_ms", "muster_train_exposed_comm_seconds", 1e-3,                            \
      "Time of the last step in which compute waited for collectives.")                                      \
    X(FIGURE_DATA_WAIT_MS, "data_wait_ms", "muster_train_data_wait_seconds", 1e-3,                           \
      "Time for which the last step's batch was waited for.")                                                \
    X(FIGURE_SLOW_RANK, "slow_rank", "muster_train_slow_rank", 1,                                            \
      "The rank that the others wait for; -1 for none.")                                                     \
    X(FIGURE_SLOW_MS, "slow_ms", "muster_train_slow_seconds", 1e-3,                                          \
      "Seconds of a step that they wait for it.")                                                            \
    X(FIGURE_TOTAL_STEPS, "total_steps", "muster_train_total_steps", 1, "Steps of the whole run.")           \
    X(FIGURE_GPU_UTILIZATION, "gpu_utilization", "muster_train_gpu_utilization_ratio", 1,                    \
      "Share of time in which the rank's GPU computed, 0 to 1.")                                             \
    X(FIGURE_GPU_MEMORY, "gpu_memory", "muster_train_gpu_memory_bytes", 1, "Memory in use on that GPU.")     \
    X(FIGURE_GPU_MEMORY_TOTAL, "gpu_memory_total", "muster_train_gpu_memory_total_bytes", 1,                 \
      "Memory of that GPU.")
enum figure {
#define FIGURE_ENUM(symbol, name, metric, factor, help) symbol,
    FIGURES(FIGURE_ENUM)
#undef FIGURE_ENUM
        FIGURE_COUNT
};
struct figure_row {
    const char *name, *metric, *help;
    double factor;
};
const struct figure_row *figure_row(enum figure figure);

/* FIGURES_LINE: bytes of a line at most; a longer one is dropped. The rest: figures with names of the
 * script's own, beyond which they are left out. */
enum { FIGURES_LINE = 512, FIGURES_OWN = 8, FIGURES_NAME = 24 };

struct own_figure {
    char name[FIGURES_NAME]; /* letters, digits and "_-./" */
    double value;
};

/* A zeroed one has none. */
struct worker_figures {
    bool there;
    bool has[FIGURE_COUNT];
    double value[FIGURE_COUNT];
    int own_count;
    struct own_figure own[FIGURES_OWN];
};

/* Whether a line has figures, good or bad: then it is no heartbeat. */
bool figures_is_line(const char *line, size_t length);
/* "figures/1 loss=2.31 step_ms=56.1", finite numbers; names that are not in the table are the script's own. A
 * line of another version or that is not of this form changes nothing. line is not terminated. */
void figures_take(struct worker_figures *figures, const char *line, size_t length);
/* One figure by its name, if there is room for a name of the script's own. */
void figures_set(struct worker_figures *figures, const char *name, size_t length, double value);

#endif
