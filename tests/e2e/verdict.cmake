# Deaths of every kind, and what is said of them.
muster_script_test(e2e_verdict COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/verdict_test.py)
muster_script_test(e2e_verdict_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/verdict_test.py --full Ends Unkillable LABELS full)
