// Folders that tests read. No path of a machine is compiled into a test, so that the compiler's cache serves every
// checkout.
#pragma once

#include <filesystem>

namespace cenote::testing {

/// The root of the sources that the tests were built from.
const std::filesystem::path& source_folder();

/// The folder of the running test program. Libraries and lists that its build makes lie beside it.
const std::filesystem::path& program_folder();

}  // namespace cenote::testing
