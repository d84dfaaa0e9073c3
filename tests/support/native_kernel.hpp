// Tests of what an emulated kernel does not do: qemu takes advice about memory without following it, and has no limit
// of address space. CENOTE_EMULATED, which ctest sets, marks programs under it.
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdlib>

namespace cenote::testing {

/// Decorates a case that is skipped there: `*needs_native_kernel()`.
inline boost::unit_test::precondition needs_native_kernel() {
  return boost::unit_test::precondition([](boost::unit_test::test_unit_id) {
    boost::test_tools::assertion_result native(std::getenv("CENOTE_EMULATED") == nullptr);
    native.message() << "the kernel is emulated";
    return native;
  });
}

}  // namespace cenote::testing
