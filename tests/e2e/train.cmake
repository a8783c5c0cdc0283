muster_script_test(e2e_train COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_test.py)
muster_script_test(e2e_demo COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/demo_test.py 250 2.65)
muster_script_test(e2e_demo_whole COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/demo_test.py 900 2.5 LABELS full)
