/* too_new.c - a program of a build for a newer processor: it uses AVX2 or AVX-512 before main, unless it ends
 * first. Linked with proto/processor/start.c it is what every program of ours is; without, it is a leak. */
#include <stdio.h>

/* Named, since compilers are free to do without. */
static void __attribute__((constructor)) too_new_start(void)
{
#ifdef __AVX512F__
    __asm__ volatile("vpxord %%zmm0, %%zmm0, %%zmm0" ::: "xmm0");
#else
    __asm__ volatile("vpxor %%ymm0, %%ymm0, %%ymm0" ::: "xmm0"); /* AVX2 */
#endif
}

int main(void)
{
    return puts("ran") < 0;
}
