# The agent under fire: kills, signals, restarts, logs.
muster_script_test(e2e_agent COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/agent_test.py)
muster_script_test(e2e_status COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/status_test.py)
# Worlds that grow and shrink.
muster_script_test(e2e_elastic COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/elastic_test.py)
# Every signal at every phase, hangs, what outlives an agent.
muster_script_test(e2e_supervise COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/supervise_test.py)
muster_script_test(e2e_supervise_matrix COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/supervise_test.py --full LABELS full TIMEOUT 1800)
muster_script_test(e2e_logs COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/logs_test.py)
muster_script_test(e2e_logs_matrix COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/logs_matrix_test.py)
