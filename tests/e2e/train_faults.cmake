# muster-train's job in namespaces: killed, frozen, ended; and refused where it would span nodes.
muster_script_test(e2e_train_faults COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_faults_test.py TIMEOUT 600)
