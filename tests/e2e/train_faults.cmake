# muster-train's job in namespaces: killed, frozen, ended, on one node and on several.
muster_script_test(e2e_train_faults COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_faults_test.py)
# The fault matrix with muster-train: six rows on two nodes (one grows to four); all rows on two and four.
muster_script_test(e2e_train_matrix COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_matrix_test.py)
muster_script_test(e2e_train_matrix_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/train_matrix_test.py --full LABELS full TIMEOUT 7200)
