# Worlds of many agents that come at once.
muster_script_test(e2e_crowd COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/crowd_test.py)
muster_script_test(e2e_crowd_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/crowd_test.py --full LABELS full)
