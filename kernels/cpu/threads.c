/* threads.c - the threads that kernels may use: how many, that OpenBLAS has one for each, and how their
 * floating-point unit treats denormals. */
#include "kernels/cpu/openblas/openblas.h"
#include "kernels/cpu/team.h"
#include "kernels/kernels.h"
#include "proto/base/error.h"

#include <pthread.h>
#include <stdio.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#ifdef __SSE__
#include <xmmintrin.h>
#endif

enum { THREADS_MAX = 1024 };

/* Denormal results and operands count as zero: they cost a hundred cycles each and mean nothing in training
 * (Adam's moments of unused rows decay into them). On other processors the default stays. */
static void flush_denormals(void)
{
#ifdef __SSE__
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#endif
}

/* On every thread that computes. OpenBLAS asks libgomp how many threads a product of this thread may have:
 * one, since its parts are made by ours. */
static void begin_thread(void)
{
    flush_denormals();
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
}

/* OpenBLAS keeps its number of threads in a global; ranks that are threads of one process come here
 * together. */
static pthread_mutex_t blas_lock = PTHREAD_MUTEX_INITIALIZER;

int kernels_cpu_threads(int threads, struct muster_error *err)
{
    if (threads < 1 || threads > THREADS_MAX)
        return error_set(err, MUSTER_E_INVALID, "%d threads for the CPU kernels: must be 1 to %d", threads,
                         THREADS_MAX);
    if (kernels_cpu_open(err)) /* before the first product */
        return -1;
#ifndef _OPENMP
    threads = 1; /* built without OpenMP: one thread everywhere */
#endif
    (void)pthread_mutex_lock(&blas_lock); /* cannot fail: a static mutex, never locked twice */
    openblas_open(NULL)->set_threads(1);  /* product.h cuts a product into parts for the team */
    (void)pthread_mutex_unlock(&blas_lock);
    return team_start(threads, begin_thread, err);
}
