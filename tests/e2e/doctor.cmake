# muster doctor, one planted fault at a time.
muster_script_test(e2e_doctor COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/doctor_test.py)
