// The calls of DebugService.
#pragma once

#include <expected>
#include <optional>
#include <string_view>

#include "services/manager/service/call_answer.hpp"
#include "services/manager/writes/fault_points.hpp"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

/// Answers at once, on any thread.
class debug_calls {
 public:
  /// Null: `debug.enabled` is off, and all calls are UNSUPPORTED.
  explicit debug_calls(fault_table* faults) noexcept : faults_(faults) {}

  /// Errors: the body was not understood; then nothing is answered.
  [[nodiscard]] std::expected<void, body_fault> call(enum rpc name, const call_body& body,
                                                     const answer_receiver& receive);
  /// The answer of a call that has to fail; nothing: it is answered as ever.
  [[nodiscard]] std::optional<answer_writer> failure_of(const rpc_row& row);

 private:
  fault_table* faults_;
};

}  // namespace cenote::manager
