# Many nodes in network namespaces: the tool that makes and harms them.
muster_script_test(e2e_cluster COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster_test.py)
muster_script_test(e2e_steps COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/steps_test.py)
