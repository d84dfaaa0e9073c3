// The simulated device with faults that come at a point that the test says, whatever its threads do meanwhile.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "tests/support/wrapped_sim.hpp"

namespace cenote::testing {

class wrapped_device : public wrapped_sim {
 public:
  result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override {
    if (refuses_copies) return fail(error_code::system, "refused");
    if (!fails_copies) return wrapped_sim::copy(on, runs);
    for (const copy_run& run : runs) std::memcpy(run.to, run.from, run.bytes / 2);
    return {};
  }
  result<event_ref> record(const stream_ref& on) override {
    if (refuses_events) return fail(error_code::closed, "away");
    return wrapped_sim::record(on);
  }
  void when(const event_ref& point, std::function<void(result<void>)> call) override {
    if (!fails_copies) return wrapped_sim::when(point, std::move(call));
    wrapped_sim::when(point,
                      [call = std::move(call)](const result<void>&) { call(fail(error_code::system, "failed")); });
  }
  [[nodiscard]] standing state() const noexcept override { return is_away ? standing::away : wrapped_sim::state(); }

  bool refuses_copies = false;  ///< the four are the test's thread's
  bool refuses_events = false;
  bool fails_copies = false;  ///< they write half of their bytes, and their events fail
  bool is_away = false;
};

}  // namespace cenote::testing
