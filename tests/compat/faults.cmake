# Real PyTorch under the fault matrix: two rows on two nodes; thirteen rows on two and four.
muster_script_test(compat_faults COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/ddp_faults_test.py LABELS compat)
muster_script_test(compat_faults_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/ddp_faults_test.py --full LABELS full TIMEOUT 7200)
