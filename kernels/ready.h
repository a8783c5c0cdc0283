/* ready.h - oneDNN in a process: its machine code, made before the first product, and a bound that a user
 * set. */
#ifndef MUSTER_KERNELS_READY_H
#define MUSTER_KERNELS_READY_H

#include <stdbool.h>

#include "kernels/kernels.h"

/* Whether a product of so many multiplications is oneDNN's by that choice, in fp32, where oneDNN is used. */
bool kernels_cpu_ready_pays(enum kernels_products by, double multiplications);
/* Loads oneDNN where it is used, and makes its machine code for all products of fp32, once a process: 25 to
 * 30 ms of a processor, which the first product takes otherwise. Products that begin during this time wait
 * for it. For a thread of its own, after kernels_cpu_blas. */
void kernels_cpu_ready(enum kernels_products by);
/* One sentence where a variable keeps oneDNN below AVX-512 on a processor that has it, or a broken file keeps
 * it away, and the way out; else "", or where oneDNN was not asked for yet. Static. */
const char *kernels_cpu_bound(void);

#endif
