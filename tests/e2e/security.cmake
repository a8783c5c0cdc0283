# Who may join a job, and strangers at its port.
muster_script_test(e2e_security COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/security_test.py)
