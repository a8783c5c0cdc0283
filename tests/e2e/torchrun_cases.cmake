muster_script_test(e2e_torchrun_cases COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/torchrun_cases_test.py)
