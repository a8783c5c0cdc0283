muster_script_test(e2e_train COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_test.py LABELS e2e TIMEOUT 240)
