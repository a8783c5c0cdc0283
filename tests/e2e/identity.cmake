# Claims of ranks, differences between nodes, late joiners, other jobs on the same port.
muster_script_test(e2e_identity COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/identity_test.py)
