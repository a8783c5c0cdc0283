# Many nodes in network namespaces: the tool that makes and harms them.
muster_script_test(e2e_cluster COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster_test.py)
muster_script_test(e2e_steps COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/steps_test.py)
# What befalls jobs on them: each row on 2 to 4 nodes; all rows on 2, 4, 8 and 16.
muster_script_test(e2e_fault_matrix COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/fault_matrix_test.py TIMEOUT 600)
muster_script_test(e2e_fault_matrix_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/fault_matrix_test.py --full LABELS full TIMEOUT 7200)
