/* clang-format off */
/* fake_cudart.h - functions of the fake CUDA runtime for the other fakes and the emulator of kernels, next to the
 * runtime's own functions; and the settings of its behaviour.
 *
 * Environment, read once unless stated otherwise. NAME:N[@R] is the N-th call (from 1) of a faked function, or of a
 * piece of work by its name, on rank R alone (of RANK) if it is given; all of it only in the first round of a job
 * (TORCHELASTIC_RESTART_COUNT 0 or not set).
 *   FAKE_CUDA_FAIL=NAME:N[@R]   that call is refused (read at every call)
 *   FAKE_CUDA_ASYNC=NAME:N[@R]  that piece of work ends in cudaErrorIllegalAddress when it runs, and every later call
 *                               gives that error (read at every piece)
 *   FAKE_CUDA_ASYNC_ERROR=CODE  the error, by its number, in place of cudaErrorIllegalAddress
 *   FAKE_CUDA_HANG=NAME:N[@R]   that piece of work never ends: calls that wait for its stream or its device do not
 *                               return (read at every piece)
 *   FAKE_CUDA_COST=NAME:US[,NAME:US...]  each such piece of work, and a call of such a function, takes at least so
 *                               many microseconds (read at every piece and call)
 *   FAKE_CUDA_COUNT=FILE        at exit: a line "function calls" for each function
 *   FAKE_CUDA_REPORT=FILE       at exit: lines "device_high_water bytes", "pinned_high_water bytes", and
 *                               "leaked_allocations", "leaked_streams", "leaked_events", "leaked_graphs" with their number, and those
 *                               of the other fakes that the process has loaded, "leaked_communicators" and
 *                               "leaked_products", and "odd_products" that were enqueued (%r in either name is this process's RANK)
 *   FAKE_CUDA_SCHEDULE=early|late|shuffled  work runs at once; only when something waits for it; each piece the one
 *                               or the other, by FAKE_CUDA_SEED (read at every push)
 *   FAKE_CUDA_DEVICES=N, FAKE_CUDA_MEMORY=BYTES of each (8 GiB), FAKE_CUDA_DRIVER=VERSION (13000; 0: there is none)
 *   FAKE_CUDA_NO_MEMORY_AFTER=NAME  once a call of that name has come, cudaMalloc and cudaHostAlloc are refused
 *   FAKE_CUDA_MAJOR=N           compute capability N.0 in place of 9.0
 *   FAKE_CUDA_CLOCK=KILOHERTZ   of the multiprocessors, in place of 1980000
 *   FAKE_CUDA_SMALL=DEVICE      half the memory and half the multiprocessors, by the properties of that device (read at
 *                               every question)
 *   FAKE_CUDA_KEYS=0            device memory is not kept from the host's threads by protection keys */
/* clang-format on */
#ifndef MUSTER_TESTS_GPU_FAKE_CUDART_H
#define MUSTER_TESTS_GPU_FAKE_CUDART_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One piece of device work - a kernel, a product, a collective: run(argument) is called in the stream's
 * order, on the stream's thread, which may touch device memory; then dispose(argument), NULL: nothing. `what`
 * lives as long as the program: it is named in reports, and FAKE_CUDA_FAIL=what:N refuses its N-th call.
 * Returns an injected error or an earlier piece of work's error, as CUDA's own calls do; nothing
 * is enqueued then, and the argument has been disposed of. The error is not the thread's last one yet: a
 * library's own runtime meets it. The stream has to be the calling thread's device. */
cudaError_t fake_cudart_enqueue(cudaStream_t stream, const char *what, void (*run)(void *argument),
                                void *argument, void (*dispose)(void *argument));

enum { FAKE_MULTIPROCESSORS = 132 }; /* of every device */

/* Remembers the error for cudaGetLastError and returns it. */
cudaError_t fake_cudart_fail(cudaError_t error);

/* Where p..p+bytes lies: the whole range inside of one live allocation, else NONE (the host's own memory, or
 * out of bounds). */
enum fake_memory { FAKE_MEMORY_NONE, FAKE_MEMORY_PINNED, FAKE_MEMORY_DEVICE };
enum fake_memory fake_cudart_memory(const void *p, size_t bytes);

/* The calling thread's device, and its choice, for other fakes: such calls are not counted. */
int fake_cudart_device(void);
void fake_cudart_use(int device);

/* Counts this call of a faked function, of any library; 1 where FAKE_CUDA_FAIL=function:N says that it shall
 * fail. With FAKE_CUDA_COUNT=FILE a line "function calls" is written to FILE for each at exit. */
int fake_refuse(const char *function);

/* How often a faked function was called so far, or a piece of work of that name enqueued. */
uint64_t fake_calls(const char *function);

/* Processor time of the process's first thread up to its last call of a faked function, without that before
 * questions about the device (Query, Synchronize), where it waits. */
int64_t fake_host_ns(void);

/* A line "name count()" of the report at exit: what another fake has made and was not given back. name lives
 * as long as the program. */
void fake_cudart_reports(const char *name, int (*count)(void));

/* Whether work enqueued on the stream is recorded and not run. */
int fake_cudart_records(cudaStream_t stream);

/* Every work that has been pushed on any stream of the process may run from here on, under any schedule:
 * for a fake whose host waits for work that nothing on a stream waits for. */
void fake_cudart_release_all(void);

#ifdef __cplusplus
}
#endif
#endif
