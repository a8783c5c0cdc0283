# The launch geometry is plain C and tested everywhere; the rest needs nvcc, and kernels_cuda_test a GPU too.
muster_test(kernels_cuda_geometry_test SOURCES kernels_cuda_geometry_test.c)
if(MUSTER_CUDA)
  muster_test(kernels_cuda_status_test SOURCES kernels_cuda_status_test.c LINK muster_kernels_cuda)
  muster_test(kernels_cuda_test SOURCES kernels_cuda_test.c kernels_support.c LINK muster_kernels_cuda LABELS gpu)
endif()
