# Read by CPack before it packs: what the package depends on and recommends, by packages/deb_depends.py.
execute_process(
  COMMAND python3 ${CPACK_MUSTER_SOURCE}/packages/deb_depends.py ${CPACK_MUSTER_BUILD} ${CPACK_MUSTER_OTHER}
  OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE status)
if(status)
  message(FATAL_ERROR "packages/deb_depends.py: ${status}")
endif()
string(REGEX MATCH "^[^\n]*" CPACK_DEBIAN_PACKAGE_DEPENDS "${packages}")
string(REGEX MATCH "[^\n]*$" CPACK_DEBIAN_PACKAGE_RECOMMENDS "${packages}")
