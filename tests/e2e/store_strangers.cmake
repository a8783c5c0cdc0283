# Strangers at the port of the workers' store.
muster_script_test(e2e_store_strangers COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/store_strangers_test.py)
