# Read by CPack before it packs for another machine: what the package depends on, by packages/deb_depends.py.
execute_process(
  COMMAND python3 ${CPACK_MUSTER_SOURCE}/packages/deb_depends.py ${CPACK_MUSTER_BUILD} aarch64 ${CPACK_MUSTER_SYSROOT}
  OUTPUT_VARIABLE depends OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE status)
if(status)
  message(FATAL_ERROR "packages/deb_depends.py: ${status}")
endif()
string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", ${depends}")
