# muster local: whole jobs.
muster_script_test(e2e_local COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/local_test.py)
