# The machine as NCCL's environment depends on it (runtime/nccl).
muster_test(nccl_description_test SOURCES nccl_description_test.c LINK muster_nccl)
