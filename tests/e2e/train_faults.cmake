# muster-train's job in namespaces: killed, frozen, ended, on one node and on several.
muster_script_test(e2e_train_faults COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_faults_test.py TIMEOUT 600)
