# The software bill of materials (CycloneDX) of a wheel: what its modules contain of other projects. It is installed where
# PEP 770 wants it. What is linked statically stands in QUADRAT_STATIC_LIBRARIES, as "name|version|licence".
if(NOT DEFINED SKBUILD_METADATA_DIR)
  return()
endif()

set(components "")
foreach(part IN ITEMS "pybind11|${pybind11_VERSION}|BSD-3-Clause" LISTS QUADRAT_STATIC_LIBRARIES)
  string(REPLACE "|" ";" part "${part}")
  list(GET part 0 name)
  list(GET part 1 version)
  list(GET part 2 licence)
  list(APPEND components "{
      \"type\": \"library\",
      \"name\": \"${name}\",
      \"version\": \"${version}\",
      \"licenses\": [{\"expression\": \"${licence}\"}]
    }")
endforeach()
list(JOIN components ", " components)
file(WRITE "${CMAKE_BINARY_DIR}/quadrat.cdx.json" "{
  \"bomFormat\": \"CycloneDX\",
  \"specVersion\": \"1.6\",
  \"version\": 1,
  \"metadata\": {
    \"component\": {
      \"type\": \"library\",
      \"name\": \"quadrat\",
      \"version\": \"${QUADRAT_VERSION}\",
      \"purl\": \"pkg:pypi/quadrat@${QUADRAT_VERSION}\",
      \"licenses\": [{\"expression\": \"Apache-2.0\"}]
    },
    \"tools\": {
      \"components\": [
        {\"type\": \"application\", \"name\": \"${CMAKE_CXX_COMPILER_ID}\", \"version\": \"${CMAKE_CXX_COMPILER_VERSION}\"}
      ]
    }
  },
  \"components\": [${components}]
}
")
install(FILES "${CMAKE_BINARY_DIR}/quadrat.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
