# The machine as NCCL's environment depends on it (runtime/nccl).
muster_test(nccl_description_test SOURCES nccl_description_test.c LINK muster_nccl)
muster_test(nccl_decide_test SOURCES nccl_decide_test.c LINK muster_nccl)
target_compile_definitions(nccl_decide_test PRIVATE MUSTER_MACHINES="${CMAKE_SOURCE_DIR}/tests/data/machines")
muster_test(nccl_pci_test SOURCES nccl_pci_test.c LINK muster_nccl)
muster_test(nccl_reader_test SOURCES nccl_reader_test.c LINK muster_nccl)
muster_test(nccl_topology_test SOURCES nccl_topology_test.c LINK muster_nccl)
target_compile_definitions(nccl_topology_test PRIVATE MUSTER_TOPOLOGIES="${CMAKE_SOURCE_DIR}/tests/data/topologies")
muster_test(nccl_doctor_test SOURCES nccl_doctor_test.c LINK muster_nccl)
