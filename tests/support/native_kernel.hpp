// Tests of what an emulated kernel does not do: qemu takes advice about memory without following it, and has no limit
// of address space. CENOTE_EMULATED, which ctest sets, marks programs under it.
#pragma once

#include <boost/make_shared.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>

namespace cenote::testing {

/// Decorates a case that is left out under emulation: `*needs_native_kernel()`.
class needs_native_kernel : public boost::unit_test::decorator::enable_if_impl {
  void apply(boost::unit_test::test_unit& unit) override {
    if (std::getenv("CENOTE_EMULATED") != nullptr) apply_impl(unit, false);
  }
  boost::unit_test::decorator::base_ptr clone() const override { return boost::make_shared<needs_native_kernel>(); }
};

}  // namespace cenote::testing
