/* figures.h - the figures of a benchmark in C for support/results.py, which writes them as JSON. `./dev
 * bench` runs such a program through support/run_bench.py, which names the file of the figures in
 * MUSTER_BENCH_FIGURES; without it nothing is written.
 */
#ifndef MUSTER_BENCHMARKS_FIGURES_H
#define MUSTER_BENCHMARKS_FIGURES_H

#include <stdbool.h>

/* A figure with its limit (name NULL: none). rates: more is better; otherwise values are times. A text must
 * have no tab. */
void figure_add(const char *figure, const char *unit, double muster, const char *limit, double limit_value,
                bool rates);

#endif
