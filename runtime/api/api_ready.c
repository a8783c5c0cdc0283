/* api_ready.c - the machine code of products is made while parameters are drawn or read. */
#include <sys/resource.h>

#include "kernels/ready.h"
#include "proto/base/thread.h"
#include "runtime/api/api_trainer.h"
#include "runtime/calibrate/calibrate.h"

static void *make_ready(void *context)
{
    const enum kernels_products *by = context;
    kernels_cpu_ready(*by);
    return NULL;
}

/* Where address space is limited, the trainer's memory comes first, and api_libraries_room looks. */
void api_ready_begin(struct muster_trainer *t)
{
    struct rlimit space;
    if ((!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY) ||
        !t->found.device.ops->host_memory ||
        !kernels_cpu_ready_pays(t->products, calibrate_limit_largest(&t->model, &t->plan) / t->threads))
        return;
    (void)kernels_cpu_blas(); /* chosen while this process has no thread of ours */
    t->ready.by = t->products;
    t->ready.begun = /* refused: the first product does it */
        !thread_start(&t->ready.thread, 0, make_ready, &t->ready.by);
}

void api_ready_end(struct muster_trainer *t)
{
    if (t->ready.begun)
        (void)pthread_join(t->ready.thread, NULL); /* cannot fail: it is joined once */
    t->ready.begun = false;
}
