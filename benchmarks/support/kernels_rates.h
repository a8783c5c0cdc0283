/* kernels_rates.h - kernels_bench's table of matrix products: the rate of each by each library. */
#ifndef MUSTER_BENCHMARKS_KERNELS_RATES_H
#define MUSTER_BENCHMARKS_KERNELS_RATES_H

/* Seconds, of a clock for such a measurement: this thread's processor time where it is the only one. */
double kernels_rates_now(int threads);

/* Prints GFLOP/s of the products of a GPT-2 of C channels and V words over N rows, on `threads` threads of
 * this one's team, by OpenBLAS, oneDNN, the choice of training.products: auto, and in bf16, in turns, with
 * their part of the processor's peak in the type. The best of some rounds counts; one thread is measured by
 * its processor time, which others on the machine disturb little. */
void kernels_rates(int N, int C, int V, int threads);

#endif
