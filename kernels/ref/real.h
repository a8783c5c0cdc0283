/* real.h - what makes one source file of the reference two: it is compiled with REF_F64 for double and
 * without for float, and REF(name) is ref_name_f32 or ref_name_f64.
 *
 * Rules of the reference: one operation a file, plain loops in the order of the formula, one thread, no BLAS;
 * sums and statistics are accumulated in double whatever real is. It is never made faster. */
#ifndef MUSTER_KERNELS_REF_REAL_H
#define MUSTER_KERNELS_REF_REAL_H

#include "kernels/kernels.h"

#ifdef REF_F64
typedef double real;
#define REF_DTYPE      DTYPE_F64
#define REF_TABLE      kernels_ref_f64
#define REF_TABLE_NAME "ref-f64"
#define REF(operation) ref_##operation##_f64
#else
typedef float real;
#define REF_DTYPE      DTYPE_F32
#define REF_TABLE      kernels_ref_f32
#define REF_TABLE_NAME "ref-f32"
#define REF(operation) ref_##operation##_f32
#endif

#define OPERATION(name, parameters, arguments) void REF(name)(KERNELS_EACH parameters, void *stream);
#define WORK(name, parameters, arguments)      size_t REF(name) parameters;
#include "kernels/operations.inc"

#endif
