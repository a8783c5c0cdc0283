/* openblas.c - see openblas.h.
 *
 * It is opened, not linked: while it is loaded it maps 128 MiB of address space for each thread that it
 * counts, and tries for ever where that is refused. Linked, it would do so before main of every program of
 * libmuster. Here it counts one thread, since products are cut into parts for threads of ours (product.h). */
#include "kernels/cpu/openblas/openblas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "kernels/cpu/openblas/environment.h"
#include "proto/base/error.h"
#include "proto/base/library.h"
#include "proto/base/text.h"

#define OPENBLAS_FILE "libopenblas.so.0"
static const char threads_variable[] = "OPENBLAS_NUM_THREADS";

static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static struct muster_error open_error;
static struct openblas functions; /* NULL pointers: not loaded */
static bool usable;

static void load(void)
{
#define ROW(symbol, member, may_miss)                                                                        \
    {                                                                                                        \
        .name = symbol, .slot = offsetof(struct openblas, member), .optional = (may_miss)                    \
    }
    static const struct library_function rows[] = {ROW("cblas_sgemm", sgemm, false),
                                                   ROW("openblas_get_config", config, false),
                                                   ROW("openblas_get_corename", corename, false),
                                                   ROW("openblas_get_parallel", parallel, false),
                                                   ROW("openblas_set_num_threads", set_threads, false),
                                                   ROW("gotoblas_dynamic_quit", forget, true),
                                                   ROW("gotoblas_dynamic_init", choose, true)};
    static const struct library library = {
        .file = OPENBLAS_FILE,
        .needs = "products on a CPU need OpenBLAS's OpenMP build (Debian: libopenblas0-openmp)",
        .functions = rows,
        .count = sizeof rows / sizeof *rows};
    (void)library_load(&library, &functions, NULL, &open_error); /* the slots tell */
}

/* Threads that OpenBLAS will count where the user set their number: no more than processors. 0: it is ours to
 * set. */
static int threads_of_user(void)
{
    cpu_set_t set;
    const char *value = getenv(threads_variable);
    const int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    if (!value)
        return 0;
    const long threads = strtol(value, NULL, 10);
    return threads > 0 && threads < cores ? (int)threads : cores;
}

/* For the library's files, what it maps while it is loaded, and the heap of a thread that begins in between,
 * for which glibc maps 128 MiB and keeps 64. */
static int look_for_room(int threads, struct muster_error *err)
{
    enum { FILES = 64 << 20, EACH = 128 << 20, HEAP = 128 << 20 };
    struct rlimit space;
    char wanted[32], most[32];
    const size_t need = FILES + HEAP + (size_t)(threads ? threads : 1) * EACH;
    if (getrlimit(RLIMIT_AS, &space) || space.rlim_cur == RLIM_INFINITY)
        return 0;
    void *place = mmap(NULL, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place != MAP_FAILED) {
        (void)munmap(place, need); /* cannot fail: it is a whole mapping of ours */
        return 0;
    }
    return error_set(
        err, MUSTER_E_NOMEM,
        "OpenBLAS needs %s of address space to be loaded, and the limit of %s (ulimit -v) leaves "
        "less: raise the limit%s",
        text_format_bytes(wanted, sizeof wanted, (int64_t)need),
        text_format_bytes(most, sizeof most, (int64_t)space.rlim_cur),
        threads > 1 ? ", or unset OPENBLAS_NUM_THREADS: it maps 128 MiB for each thread" : "");
}

int openblas_check_build(int parallel, const char *config, struct muster_error *err)
{
    enum { BUILT_WITH_OPENMP = 2 }; /* 0: sequential, 1: pthreads */
    return parallel == BUILT_WITH_OPENMP
               ? 0
               : error_set(
                     err, MUSTER_E_UNSUPPORTED,
                     "the OpenBLAS that was loaded (%s) is not the OpenMP build, which starts no threads "
                     "of its own: install libopenblas0-openmp and take other builds out of "
                     "LD_LIBRARY_PATH",
                     config);
}

static void open_once_only(void)
{
    const int threads = threads_of_user();
    void *earlier = dlopen(OPENBLAS_FILE, RTLD_NOW | RTLD_NOLOAD);
    if (earlier)
        (void)dlclose(earlier); /* another user of the library keeps it */
    else if (look_for_room(threads, &open_error))
        return;
    /* the variable is gone afterwards: processes that this one starts count for themselves */
    if (earlier || threads || !environment_with("OPENBLAS_NUM_THREADS=1", load))
        load();
    usable = functions.sgemm && !openblas_check_build(functions.parallel(), functions.config(), &open_error);
}

const struct openblas *openblas_open(struct muster_error *err)
{
    (void)pthread_once(&open_once, open_once_only); /* cannot fail: both arguments are valid */
    if (usable)
        return &functions;
    if (err)
        *err = open_error;
    return NULL;
}

static void by_loops(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                     int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride)
{
    const ptrdiff_t a_row = a_transposed ? 1 : a_stride, a_step = a_transposed ? a_stride : 1;
    const ptrdiff_t b_column = b_transposed ? b_stride : 1, b_step = b_transposed ? 1 : b_stride;
    for (ptrdiff_t row = 0; row < rows; row++)
        for (ptrdiff_t column = 0; column < columns; column++) {
            float sum = 0, *to = out + row * out_stride + column;
            for (ptrdiff_t k = 0; k < depth; k++)
                sum += a[row * a_row + k * a_step] * b[column * b_column + k * b_step];
            *to = beta != 0 ? beta * *to + sum : sum;
        }
}

void openblas_f32(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                  int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride)
{
    const struct openblas *library = openblas_open(NULL);
    if (library)
        library->sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans,
                       b_transposed ? CblasTrans : CblasNoTrans, rows, columns, depth, 1.0f, a, a_stride, b,
                       b_stride, beta, out, out_stride);
    else
        by_loops(a_transposed, b_transposed, rows, columns, depth, a, a_stride, b, b_stride, beta, out,
                 out_stride);
}
