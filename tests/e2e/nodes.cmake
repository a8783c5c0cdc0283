# Many nodes in network namespaces: the tool that makes and harms them.
muster_script_test(e2e_cluster COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster_test.py)
muster_script_test(e2e_steps COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/steps_test.py)
# What befalls jobs on them: each row on 2 to 4 nodes; all rows on 2, 4, 8 and 16.
muster_script_test(e2e_fault_matrix COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/fault_matrix_test.py)
muster_script_test(e2e_fault_matrix_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/fault_matrix_test.py --full LABELS full TIMEOUT 7200)
# A job that is harmed at random.
foreach(mode static elastic)
  muster_script_test(e2e_chaos_${mode} COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/chaos_test.py --mode ${mode} --seconds 60
    LABELS full)
  muster_script_test(e2e_chaos_${mode}_long COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/chaos_test.py --mode ${mode} --nodes 8
    --seconds 900 LABELS soak TIMEOUT 1800)
endforeach()
