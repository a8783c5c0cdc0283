# What dying workers take with them, 64 that shout, hidden descendants, an agent as process 1.
muster_script_test(e2e_faults COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/faults_test.py)
muster_script_test(e2e_faults_full COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/faults_test.py --full LABELS full)
# What users of torchrun complain of, cured.
muster_script_test(e2e_complaints COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/complaints_test.py)
