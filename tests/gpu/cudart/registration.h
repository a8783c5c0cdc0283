/* registration.h - a module built by nvcc registers its kernels with the CUDA runtime: for the test of
 * the shipped binary's host side. */
#ifndef MUSTER_TESTS_GPU_REGISTRATION_H
#define MUSTER_TESTS_GPU_REGISTRATION_H

#ifdef __cplusplus
extern "C" {
#endif

/* Kernels that were registered with a name that has `part` in it (mangled: "10add_kernel"). */
int fake_cudart_kernels(const char *part);
/* Launches of such kernels that were accepted. */
int fake_cudart_launches(const char *part);

#ifdef __cplusplus
}
#endif
#endif
